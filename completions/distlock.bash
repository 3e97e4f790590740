# bash completion for distlock. Needs nothing but bash; with bash-completion loaded, the command behind NAME is
# completed by its own completion.

# >>> from the application, by completions/generate.py: edits are lost
__distlock_table()
{
    # Of the command $1: flags, options with a value, what its arguments are; empty: the top level.
    case $1 in
        '')
            commands='run check fence status inspect release drill doctor purge backends config init history metrics'
            flags='-V --version -h --help'
            ;;
        run)
            flags='-n --nonblock --nb --fail-open -v --verbose -q --quiet -x -e --exclusive -o --close -h --help'
            valued='--ttl -w --wait --timeout -E --conflict-exit-code -b --backend --require -k --kill-after
                --kill-signal --max-run --min-hold --min-interval --once --once-keep --mark --skip-exit-code
                --max-holders --jitter --label --descendants --log-to --log-format --config'
            arguments='lock command'
            ;;
        check)
            flags='--verify -h --help'
            valued='--need -b --backend --config'
            ;;
        fence)
            flags='--reset --yes -h --help'
            valued='--token --store --max-holders'
            arguments='text command'
            ;;
        status)
            flags='-a --all --json --watch -h --help'
            valued='-b --backend --interval --config'
            arguments='locks'
            ;;
        inspect)
            flags='--json -q --quiet -h --help'
            valued='-b --backend --succeeded-within --config'
            arguments='lock'
            ;;
        release)
            flags='--now --yes -h --help'
            valued='--token --owner -b --backend --config'
            arguments='lock'
            ;;
        drill)
            flags='--json -h --help'
            valued='--ttl -b --backend --config'
            ;;
        doctor)
            flags='--json -h --help'
            valued='--recovery -b --backend --config'
            ;;
        purge)
            flags='--fences --yes --json -h --help'
            valued='--unused-for -b --backend --config'
            arguments='locks'
            ;;
        backends)
            flags='--json -h --help'
            ;;
        config)
            flags='--json -h --help'
            valued='--config --lock'
            arguments='init'
            ;;
        init)
            flags='-h --help'
            valued='-b --backend --config'
            ;;
        history)
            flags='--json -h --help'
            valued='--since'
            arguments='lock'
            ;;
        metrics)
            flags='-h --help'
            ;;
    esac
}

__distlock_values()
{
    # What can be said to option $2 of command $1.
    case "$1 $2" in
        'run -b' | 'run --backend') values='local:' ;;
        'run --require') values='efficiency correctness' ;;
        'run --kill-signal') values='TERM INT HUP QUIT USR1 USR2 KILL' ;;
        'run --mark') values='success start' ;;
        'run --descendants') values='leave kill wait' ;;
        'run --log-to') values='syslog journal'; files=1 ;;
        'run --log-format') values='text json' ;;
        'run --config') files=1 ;;
        'check -b' | 'check --backend') values='local:' ;;
        'check --config') files=1 ;;
        'fence --store') files=1 ;;
        'status -b' | 'status --backend') values='local:' ;;
        'status --config') files=1 ;;
        'inspect -b' | 'inspect --backend') values='local:' ;;
        'inspect --config') files=1 ;;
        'release -b' | 'release --backend') values='local:' ;;
        'release --config') files=1 ;;
        'drill -b' | 'drill --backend') values='local:' ;;
        'drill --config') files=1 ;;
        'doctor -b' | 'doctor --backend') values='local:' ;;
        'doctor --config') files=1 ;;
        'purge -b' | 'purge --backend') values='local:' ;;
        'purge --config') files=1 ;;
        'config --config') files=1 ;;
        'config --lock') locks=1 ;;
        'init -b' | 'init --backend') values='local:' ;;
        'init --config') files=1 ;;
    esac
}
# <<<

# Prints the locks on record, one a line: a second at most, and nothing if the backend does not answer.
__distlock_locks()
{
    local program
    program=$(type -P -- "${words[0]}") || program=distlock
    timeout -k 0.2 1 "$program" locknames "${place[@]}" </dev/null 2>/dev/null
}

# Offers those words, one a line of stdin, that begin as the current one does, fit to be typed.
__distlock_offer_lines()
{
    local line typed=$current quote=''
    case $typed in
        [\'\"]*) quote=${typed:0:1} typed=${typed:1} ;;
        *) typed=${typed//\\/} ;;
    esac
    while IFS= read -r line; do
        [[ $line == "$typed"* ]] || continue
        [[ -n $quote ]] || printf -v line %q "$line"
        # Inside of quotes readline adds the closing one; a word it never sees whole loses what stands before a ':'.
        [[ -n $quote || $current != *[:=]* ]] || line=${line#"${current%"${current##*[:=]}"}"}
        COMPREPLY+=("$line")
    done
}

_distlock()
{
    COMPREPLY=()

    # bash splits at ':' and '=' too (COMP_WORDBREAKS), so that redis://h is three words. Put together again what has
    # no blank between; `at` keeps where in COMP_WORDS each word began.
    local -a words=() at=() place=()
    local line=$COMP_LINE rest i last=-1
    for ((i = 0; i <= COMP_CWORD; i++)); do
        rest=${line#"${line%%[![:space:]]*}"}
        if ((last >= 0)) && [[ -n ${COMP_WORDS[i]} && $rest == "$line" ]]; then
            words[last]+=${COMP_WORDS[i]}
        else
            ((++last))
            words[last]=${COMP_WORDS[i]}
            at[last]=$i
        fi
        line=${rest#"${COMP_WORDS[i]}"}
    done
    local current=${words[last]} name=${words[1]}

    local commands='' flags='' valued='' arguments=''
    if ((last == 1)); then
        __distlock_table ''
        COMPREPLY=($(compgen -W "$commands $flags" -- "$current"))
        return
    fi
    __distlock_table "$name"
    [[ -n $flags ]] || return

    # Find the part of the line that the cursor is in. The options of run end at NAME, those of the others do not.
    local shorts='' plain='' word option='' options=1 arg=0 first=0
    for word in $valued; do [[ $word == --* ]] || shorts+=${word:1}; done
    for word in $flags; do [[ $word == --* ]] || plain+=${word:1}; done
    for ((i = 2; i < last; i++)); do
        word=${words[i]}
        if [[ -n $option ]]; then
            case $option in -b | --backend | --config) place+=("$option" "$word") ;; esac
            option=''
        elif ((options)) && [[ $word == -- ]]; then
            options=0
        elif ((options)) && [[ $word == --*=* ]]; then
            case $word in --backend=* | --config=*) place+=("$word") ;; esac
        elif ((options)) && [[ $word == --* ]]; then
            [[ " "$valued" " =~ [[:space:]]"$word"[[:space:]] ]] && option=$word
        elif ((options)) && [[ $word == -?* ]]; then
            # Of joined short options the first with a value takes the rest, or the next word.
            [[ -n $shorts && $word =~ ^-[$plain]*([$shorts])$ ]] && option=-${BASH_REMATCH[1]}
        else
            ((++arg))
            first=$((i + 1))
            [[ $name == run ]] && break
            ((options)) || [[ $arguments != *command ]] || break
        fi
    done

    # Behind NAME of run, and behind `RESOURCE --` of fence, everything is the command's.
    if [[ $arguments == *command ]] && ((arg)) && [[ $name == run || $options -eq 0 ]]; then
        if [[ $name == run ]]; then
            if ((first == last)) && [[ $current == -* ]]; then
                COMPREPLY=($(compgen -W '-- -c' -- "$current"))
                return
            fi
        fi
        [[ ${words[first]} == -- ]] && ((first < last)) && ((++first))
        if declare -F _comp_command_offset >/dev/null; then
            _comp_command_offset "${at[first]}"
        elif declare -F _command_offset >/dev/null; then
            _command_offset "${at[first]}"
        elif ((first == last)); then
            COMPREPLY=($(compgen -c -- "$current"))
        else
            compopt -o default 2>/dev/null
        fi
        return
    fi

    if [[ -z $option && $options -eq 1 && $current == --*=* ]]; then
        option=${current%%=*}
        current=${current#*=}
    fi
    local values='' files='' locks=''
    if [[ -n $option ]]; then
        __distlock_values "$name" "$option"
        [[ $option == --kill-signal ]] && current=${current^^}
        [[ -z $values ]] || COMPREPLY=($(compgen -W "$values" -- "$current"))
        [[ $values != *: ]] || compopt -o nospace 2>/dev/null
        [[ -z $files ]] || compopt -o default 2>/dev/null
        [[ -z $locks ]] || __distlock_offer_lines < <(__distlock_locks)
    elif ((options)) && [[ $current == -* ]]; then
        COMPREPLY=($(compgen -W "$flags $valued" -- "$current"))
    else
        local -a kinds=($arguments)
        case ${kinds[arg]:-${kinds[-1]:-}} in
            lock) ((arg)) || __distlock_offer_lines < <(__distlock_locks) ;;
            locks) __distlock_offer_lines < <(__distlock_locks) ;;
            text | command | '') ;;
            *) ((arg)) || COMPREPLY=($(compgen -W "${kinds[arg]}" -- "$current")) ;;
        esac
    fi
}

complete -F _distlock distlock

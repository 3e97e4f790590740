# bash completion for distlock. Needs nothing but bash; with bash-completion loaded, the command behind NAME is
# completed by its own completion.

_distlock()
{
    COMPREPLY=()
    local flags='-n --nonblock --nb -v --verbose -q --quiet --fail-open -x -e --exclusive -o --close -h --help'
    local valued='--ttl -w --wait --timeout -E --conflict-exit-code -b --backend -k --kill-after --kill-signal
        --jitter --label --descendants --require --log-to --log-format --config
        --max-run --min-hold --min-interval --once --once-keep --mark --skip-exit-code --max-holders'
    local signals='TERM INT HUP QUIT USR1 USR2 KILL'

    # bash splits at ':' and '=' too (COMP_WORDBREAKS), so that redis://h is three words. Put together again what has
    # no blank between; `at` keeps where in COMP_WORDS each word began.
    local -a words=() at=()
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
    local current=${words[last]}

    # Find the part of the line that the cursor is in.
    local option='' name=0 options=1
    if ((last == 1)); then
        COMPREPLY=($(compgen -W 'run -V --version -h --help' -- "$current"))
        return
    fi
    [[ ${words[1]} == run ]] || return
    for ((i = 2; i < last; i++)); do
        if [[ -n $option ]]; then
            option=''
        elif ((options)) && [[ ${words[i]} == -- ]]; then
            options=0
        elif ((options)) && [[ ${words[i]} == --*=* ]]; then
            :
        elif ((options)) && [[ ${words[i]} == --* ]]; then
            [[ " "$valued" " =~ [[:space:]]"${words[i]}"[[:space:]] ]] && option=${words[i]}
        elif ((options)) && [[ ${words[i]} == -?* ]]; then
            # Of joined short options the first with a value takes the rest, or the next word.
            [[ ${words[i]} =~ ^-[nvqxeoh]*([wEbk])$ ]] && option=-${BASH_REMATCH[1]}
        else
            name=$i
            break
        fi
    done

    if ((name)); then
        local first=$((name + 1))
        if ((first == last)) && [[ $current == -* ]]; then
            COMPREPLY=($(compgen -W '-- -c' -- "$current"))
            return
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
    case $option in
        --mark) COMPREPLY=($(compgen -W 'success start' -- "$current")) ;;
        --require) COMPREPLY=($(compgen -W 'efficiency correctness' -- "$current")) ;;
        --descendants) COMPREPLY=($(compgen -W 'leave kill wait' -- "$current")) ;;
        --kill-signal) COMPREPLY=($(compgen -W "$signals" -- "${current^^}")) ;;
        -b | --backend)
            COMPREPLY=($(compgen -W 'local:' -- "$current"))
            compopt -o nospace 2>/dev/null
            ;;
        --log-to)
            COMPREPLY=($(compgen -W 'syslog journal' -- "$current"))
            compopt -o default 2>/dev/null
            ;;
        --log-format) COMPREPLY=($(compgen -W 'text json' -- "$current")) ;;
        --config) compopt -o default 2>/dev/null ;;
        '') ((options)) && [[ $current == -* ]] && COMPREPLY=($(compgen -W "$flags $valued" -- "$current")) ;;
    esac
}

complete -F _distlock distlock

# fish completion for distlock: the command behind NAME is completed as it is by itself.

# Prints the part of the line that the cursor is in: `top`; the command of distlock, where its options can stand;
# `behind`, where they cannot any more, and the command; or `command` and on further lines its words so far. Then, but
# for the last, how many arguments there were.
function __distlock_part
    set -l words (commandline -opc)[2..]
    if not set -q words[1]
        printf '%s\n' top 0
        return
    end
    set -l name $words[1]
    set -e words[1]
    set -l options yes
    set -l arguments 0
    while set -q words[1]
        set -l word $words[1]
        set -e words[1]
        if test $options = yes; and string match -qr -- '^-.' $word
            if test "$word" = --
                set options no
            else if __distlock_takes_next $name $word
                set -e words[1]
            end
        else
            set arguments (math $arguments + 1)
        end
        # Behind NAME of run, and behind `RESOURCE --` of fence, everything is the command's.
        if contains -- $name $__distlock_with_command; and test $arguments -gt 0
            if test $name = run -o $options = no
                test "$words[1]" = --; and set -e words[1]
                printf '%s\n' command $name $words
                return
            end
        end
    end
    test $options = yes; and printf '%s\n' $name $arguments; or printf '%s\n' behind $arguments $name
end

function __distlock_in --argument-names name
    set -l part (__distlock_part)
    test "$part[1]" = $name
end

# An argument of this command, of this kind, can stand here.
function __distlock_at --argument-names name kind
    set -l part (__distlock_part)
    test "$part[1]" = $name; or test "$part[1]" = behind -a "$part[3]" = $name; or return
    test $kind = locks; or test "$part[2]" = 0
end

# The locks on record: a second at most, and nothing if the backend does not answer.
function __distlock_locks
    set -l words (commandline -opc)
    set -l place
    set -l i 2
    while set -q words[$i]
        switch $words[$i]
            case -b --backend --config
                set -l next (math $i + 1)
                set -q words[$next]; and set -a place $words[$i] $words[$next]
            case '--backend=*' '--config=*'
                set -a place $words[$i]
        end
        set i (math $i + 1)
    end
    set -l program (string replace -r -- '^~/' "$HOME/" $words[1])
    command -q -- $program; or set program distlock
    timeout -k 0.2 1 $program locknames $place </dev/null 2>/dev/null
end

function __distlock_command
    set -l part (__distlock_part)
    set -l words $part[3..]
    set -l current (commandline -ct)
    if not set -q words[1]; and string match -q -- '-*' $current; and test $part[2] = run
        printf '%s\n' -- -c
    else
        complete --do-complete=(string join ' ' -- (string escape -- $words) $current)
    end
end

complete -c distlock -f
complete -c distlock -n '__distlock_in command' -a '(__distlock_command)'

# >>> from the application, by completions/generate.py: edits are lost
function __distlock_takes_next --argument-names name word
    switch $name
        case run
            string match -qr -- '^-[nvqxeoh]*[wEbk]$|^--(ttl|wait|timeout|conflict-exit-code|backend|require|kill-after|kill-signal|max-run|min-hold|min-interval|once|once-keep|mark|skip-exit-code|max-holders|jitter|label|descendants|log-to|log-format|config)$' $word
        case check
            string match -qr -- '^-[h]*[b]$|^--(need|backend|config)$' $word
        case fence
            string match -qr -- '^--(token|store|max-holders)$' $word
        case status
            string match -qr -- '^-[ah]*[b]$|^--(backend|interval|config)$' $word
        case inspect
            string match -qr -- '^-[qh]*[b]$|^--(backend|succeeded-within|config)$' $word
        case release
            string match -qr -- '^-[h]*[b]$|^--(token|owner|backend|config)$' $word
        case drill
            string match -qr -- '^-[h]*[b]$|^--(ttl|backend|config)$' $word
        case doctor
            string match -qr -- '^-[h]*[b]$|^--(recovery|backend|config)$' $word
        case purge
            string match -qr -- '^-[h]*[b]$|^--(unused-for|backend|config)$' $word
        case config
            string match -qr -- '^--(config|lock)$' $word
        case init
            string match -qr -- '^-[h]*[b]$|^--(backend|config)$' $word
        case history
            string match -qr -- '^--(since)$' $word
        case '*'
            false
    end
end

set -g __distlock_with_command run fence

complete -c distlock -n '__distlock_in top' -a run -d 'Run COMMAND while holding the lock NAME'
complete -c distlock -n '__distlock_in top' -a check -d 'Tell a job whether it still holds its lock: 0, or 76 with the reason'
complete -c distlock -n '__distlock_in top' -a fence -d 'Let a fencing token pass, or refuse it (65) if RESOURCE has seen a greater one'
complete -c distlock -n '__distlock_in top' -a status -d 'Show the locks that are held, or match PATTERN'
complete -c distlock -n '__distlock_in top' -a inspect -d 'Show one lock'
complete -c distlock -n '__distlock_in top' -a release -d 'Take a lock away from the holder with this token'
complete -c distlock -n '__distlock_in top' -a drill -d 'Freeze a holder past its lease, let a second one take over, thaw the first'
complete -c distlock -n '__distlock_in top' -a doctor -d 'Look for what breaks locks'
complete -c distlock -n '__distlock_in top' -a purge -d 'Forget locks that nobody uses any more; prints their names'
complete -c distlock -n '__distlock_in top' -a backends -d 'List the engines'
complete -c distlock -n '__distlock_in top' -a config -d 'Show every setting with where it was set; passwords are not shown'
complete -c distlock -n '__distlock_in top' -a init -d 'Make what the backend needs before its first lock, and check that it may be used'
complete -c distlock -n '__distlock_in top' -a history -d 'Show the runs of this user on this host'
complete -c distlock -n '__distlock_in top' -a metrics -d 'Print the metrics of this user\'s runs on this host as Prometheus text'

complete -c distlock -n '__distlock_in top' -s V -l version -d 'Show the versions and exit'
complete -c distlock -n '__distlock_in top' -s h -l help -d 'Show this message and exit'

complete -c distlock -n '__distlock_in run' -l ttl -x -d 'Lease length, at least 3s; renewed every third of it'
complete -c distlock -n '__distlock_in run' -s n -l nonblock -l nb -d 'Do not wait for the lock'
complete -c distlock -n '__distlock_in run' -s w -l wait -l timeout -x -d 'Wait at most D; 0 is -n'
complete -c distlock -n '__distlock_in run' -s E -l conflict-exit-code -x -d 'Exit code when the lock was not had'
complete -c distlock -n '__distlock_in run' -s b -l backend -x -a 'local:' -d 'Where the lock lives'
complete -c distlock -n '__distlock_in run' -l require -x -a 'efficiency correctness' -d 'Refuse a backend of a lower class: correctness if a double run corrupts'
complete -c distlock -n '__distlock_in run' -s k -l kill-after -x -d 'From the stop signal to SIGKILL when the lease is lost: at most ttl/3'
complete -c distlock -n '__distlock_in run' -l kill-signal -x -a 'TERM INT HUP QUIT USR1 USR2 KILL' -d 'The stop signal'
complete -c distlock -n '__distlock_in run' -l max-run -x -d 'Stop COMMAND after D; exit 124'
complete -c distlock -n '__distlock_in run' -l min-hold -x -d 'Keep the lock for at least D, though COMMAND ends sooner'
complete -c distlock -n '__distlock_in run' -l min-interval -x -d 'Skip if the last successful run started less than D ago'
complete -c distlock -n '__distlock_in run' -l once -x -d 'Skip if done for KEY already: a date, the number of a batch'
complete -c distlock -n '__distlock_in run' -l once-keep -x -d 'How long what is done for a KEY is remembered'
complete -c distlock -n '__distlock_in run' -l mark -x -a 'success start' -d 'When --once and --min-interval count: a success, or each start'
complete -c distlock -n '__distlock_in run' -l skip-exit-code -x -d 'Exit code of a run that was skipped'
complete -c distlock -n '__distlock_in run' -l max-holders -x -d 'Up to N holders at once; all say the same N'
complete -c distlock -n '__distlock_in run' -l fail-open -d 'Run without a lock if the backend cannot be reached, and say so'
complete -c distlock -n '__distlock_in run' -l jitter -x -d 'Wait a random 0..D before the first attempt'
complete -c distlock -n '__distlock_in run' -l label -x -d 'Free text shown to whoever waits'
complete -c distlock -n '__distlock_in run' -l descendants -x -a 'leave kill wait' -d 'What COMMAND left running when it ended'
complete -c distlock -n '__distlock_in run' -s v -l verbose -d 'Say more on stderr'
complete -c distlock -n '__distlock_in run' -s q -l quiet -d 'Say less: errors only'
complete -c distlock -n '__distlock_in run' -s x -s e -l exclusive -d 'As flock\'s: run does so anyway'
complete -c distlock -n '__distlock_in run' -s o -l close -d 'As flock\'s: run does so anyway'
complete -c distlock -n '__distlock_in run' -l log-to -x -a 'syslog journal (__fish_complete_path (commandline -ct))' -d 'A line for each event: waiting, granted, lost, released'
complete -c distlock -n '__distlock_in run' -l log-format -x -a 'text json' -d 'Of the lines of --log-to'
complete -c distlock -n '__distlock_in run' -l config -x -a '(__fish_complete_path (commandline -ct))' -d 'The configuration, instead of the site\'s and the user\'s'
complete -c distlock -n '__distlock_in run' -s h -l help -d 'Show this message and exit'
complete -c distlock -n '__distlock_at run lock' -a '(__distlock_locks)'

complete -c distlock -n '__distlock_in check' -l need -x -d 'Lease that must be left'
complete -c distlock -n '__distlock_in check' -l verify -d 'Ask the backend as well: a round trip'
complete -c distlock -n '__distlock_in check' -s b -l backend -x -a 'local:' -d 'Where the lock lives'
complete -c distlock -n '__distlock_in check' -l config -x -a '(__fish_complete_path (commandline -ct))' -d 'The configuration, instead of the site\'s and the user\'s'
complete -c distlock -n '__distlock_in check' -s h -l help -d 'Show this message and exit'

complete -c distlock -n '__distlock_in fence' -l token -x -d 'Default: that of the run around this'
complete -c distlock -n '__distlock_in fence' -l store -x -a '(__fish_complete_path (commandline -ct))' -d 'The register; a backend\'s if hosts share it'
complete -c distlock -n '__distlock_in fence' -l reset -d 'Forget the tokens seen: after a move to another backend'
complete -c distlock -n '__distlock_in fence' -l max-holders -x -d 'With --reset: for each of so many holders'
complete -c distlock -n '__distlock_in fence' -l yes -d 'Do not ask'
complete -c distlock -n '__distlock_in fence' -s h -l help -d 'Show this message and exit'

complete -c distlock -n '__distlock_in status' -s b -l backend -x -a 'local:' -d 'Where the lock lives'
complete -c distlock -n '__distlock_in status' -s a -l all -d 'Free locks that are on record too'
complete -c distlock -n '__distlock_in status' -l json -d 'For programs: keys and units are stable'
complete -c distlock -n '__distlock_in status' -l watch -d 'Go on showing them, until q or Ctrl-C'
complete -c distlock -n '__distlock_in status' -l interval -x -d 'Of --watch: how often to look'
complete -c distlock -n '__distlock_in status' -l config -x -a '(__fish_complete_path (commandline -ct))' -d 'The configuration, instead of the site\'s and the user\'s'
complete -c distlock -n '__distlock_in status' -s h -l help -d 'Show this message and exit'
complete -c distlock -n '__distlock_at status locks' -a '(__distlock_locks)'

complete -c distlock -n '__distlock_in inspect' -s b -l backend -x -a 'local:' -d 'Where the lock lives'
complete -c distlock -n '__distlock_in inspect' -l json -d 'For programs: keys and units are stable'
complete -c distlock -n '__distlock_in inspect' -s q -l quiet -d 'Print nothing; end with 0: held, 1: free'
complete -c distlock -n '__distlock_in inspect' -l succeeded-within -x -d 'End with 0 if the last run that succeeded, on any host, started no longer than D ago'
complete -c distlock -n '__distlock_in inspect' -l config -x -a '(__fish_complete_path (commandline -ct))' -d 'The configuration, instead of the site\'s and the user\'s'
complete -c distlock -n '__distlock_in inspect' -s h -l help -d 'Show this message and exit'
complete -c distlock -n '__distlock_at inspect lock' -a '(__distlock_locks)'

complete -c distlock -n '__distlock_in release' -l token -x -d 'The holder\'s, as status shows it: no other is touched'
complete -c distlock -n '__distlock_in release' -l owner -x -d 'The holder\'s, where the backend gives no tokens'
complete -c distlock -n '__distlock_in release' -l now -d 'Free the lock at once, though the holder\'s command may still run'
complete -c distlock -n '__distlock_in release' -l yes -d 'Do not ask'
complete -c distlock -n '__distlock_in release' -s b -l backend -x -a 'local:' -d 'Where the lock lives'
complete -c distlock -n '__distlock_in release' -l config -x -a '(__fish_complete_path (commandline -ct))' -d 'The configuration, instead of the site\'s and the user\'s'
complete -c distlock -n '__distlock_in release' -s h -l help -d 'Show this message and exit'
complete -c distlock -n '__distlock_at release lock' -a '(__distlock_locks)'

complete -c distlock -n '__distlock_in drill' -l ttl -x -d 'Lease of the two holders'
complete -c distlock -n '__distlock_in drill' -l json -d 'For programs: keys and units are stable'
complete -c distlock -n '__distlock_in drill' -s b -l backend -x -a 'local:' -d 'Where the lock lives'
complete -c distlock -n '__distlock_in drill' -l config -x -a '(__fish_complete_path (commandline -ct))' -d 'The configuration, instead of the site\'s and the user\'s'
complete -c distlock -n '__distlock_in drill' -s h -l help -d 'Show this message and exit'

complete -c distlock -n '__distlock_in doctor' -l recovery -x -d 'How long the lock of a host that died may stay unavailable'
complete -c distlock -n '__distlock_in doctor' -l json -d 'For programs: keys and units are stable'
complete -c distlock -n '__distlock_in doctor' -s b -l backend -x -a 'local:' -d 'Where the lock lives'
complete -c distlock -n '__distlock_in doctor' -l config -x -a '(__fish_complete_path (commandline -ct))' -d 'The configuration, instead of the site\'s and the user\'s'
complete -c distlock -n '__distlock_in doctor' -s h -l help -d 'Show this message and exit'

complete -c distlock -n '__distlock_in purge' -l unused-for -x -d 'Only what was last granted or given back D ago, or more'
complete -c distlock -n '__distlock_in purge' -l fences -d 'Fence registers instead: stale tokens pass then'
complete -c distlock -n '__distlock_in purge' -l yes -d 'Do not ask'
complete -c distlock -n '__distlock_in purge' -l json -d 'For programs: keys and units are stable'
complete -c distlock -n '__distlock_in purge' -s b -l backend -x -a 'local:' -d 'Where the lock lives'
complete -c distlock -n '__distlock_in purge' -l config -x -a '(__fish_complete_path (commandline -ct))' -d 'The configuration, instead of the site\'s and the user\'s'
complete -c distlock -n '__distlock_in purge' -s h -l help -d 'Show this message and exit'
complete -c distlock -n '__distlock_at purge locks' -a '(__distlock_locks)'

complete -c distlock -n '__distlock_in backends' -l json -d 'For programs: keys and units are stable'
complete -c distlock -n '__distlock_in backends' -s h -l help -d 'Show this message and exit'

complete -c distlock -n '__distlock_in config' -l config -x -a '(__fish_complete_path (commandline -ct))' -d 'The configuration, instead of the site\'s and the user\'s'
complete -c distlock -n '__distlock_in config' -l lock -x -a '(__distlock_locks)' -d 'What counts for this lock'
complete -c distlock -n '__distlock_in config' -l json -d 'For programs: keys and units are stable'
complete -c distlock -n '__distlock_in config' -s h -l help -d 'Show this message and exit'
complete -c distlock -n '__distlock_at config init' -a init

complete -c distlock -n '__distlock_in init' -s b -l backend -x -a 'local:' -d 'Where the lock lives'
complete -c distlock -n '__distlock_in init' -l config -x -a '(__fish_complete_path (commandline -ct))' -d 'The configuration, instead of the site\'s and the user\'s'
complete -c distlock -n '__distlock_in init' -s h -l help -d 'Show this message and exit'

complete -c distlock -n '__distlock_in history' -l since -x -d 'That ended in the last D'
complete -c distlock -n '__distlock_in history' -l json -d 'For programs: keys and units are stable'
complete -c distlock -n '__distlock_in history' -s h -l help -d 'Show this message and exit'
complete -c distlock -n '__distlock_at history lock' -a '(__distlock_locks)'

complete -c distlock -n '__distlock_in metrics' -s h -l help -d 'Show this message and exit'
# <<<

# fish completion for distlock: the command behind NAME is completed as it is by itself.

# Prints the part of the line that the cursor is in: `top`, `options`, `name`, or `command` and on further lines the
# words of the command so far. Options end at NAME, and some take the next word.
function __distlock_part
    set -l words (commandline -opc)[2..]
    if not set -q words[1]
        echo top
        return
    end
    test "$words[1]" = run; or return
    set -e words[1]
    set -l options yes
    while set -q words[1]
        set -l word $words[1]
        set -e words[1]
        if test $options = yes; and string match -qr -- '^-.' $word
            if test "$word" = --
                set options no
            else if string match -qr -- '^-[nvqxeoh]*[wEbk]$|^--(ttl|wait|timeout|conflict-exit-code|backend|kill-after|kill-signal|jitter|label|descendants|require|log-to|log-format|config|max-run|min-hold|min-interval|once|once-keep|mark|skip-exit-code|max-holders)$' $word
                set -e words[1]
            end
        else
            test "$words[1]" = --; and set -e words[1]
            printf '%s\n' command $words
            return
        end
    end
    test $options = yes; and echo options; or echo name
end

function __distlock_in
    set -l part (__distlock_part)
    test "$part[1]" = $argv[1]
end

function __distlock_command
    set -l words (__distlock_part)[2..]
    set -l current (commandline -ct)
    if not set -q words[1]; and string match -q -- '-*' $current
        printf '%s\n' -- -c
    else
        complete --do-complete=(string join ' ' -- (string escape -- $words) $current)
    end
end

complete -c distlock -f
complete -c distlock -n '__distlock_in top' -a run -d 'Run a command under a lock'
complete -c distlock -n '__distlock_in top' -s V -l version -d 'Show the version'
complete -c distlock -n '__distlock_in top' -s h -l help -d 'Show help'

complete -c distlock -n '__distlock_in options' -l ttl -x -d 'Length of the lease'
complete -c distlock -n '__distlock_in options' -s n -l nonblock -l nb -d 'Do not wait'
complete -c distlock -n '__distlock_in options' -s w -l wait -l timeout -x -d 'Wait at most that long'
complete -c distlock -n '__distlock_in options' -s E -l conflict-exit-code -x -d 'Exit code when the lock was not had'
complete -c distlock -n '__distlock_in options' -s b -l backend -x -a 'local:' -d 'Where the lock lives'
complete -c distlock -n '__distlock_in options' -s k -l kill-after -x -d 'Grace between the stop signal and KILL'
complete -c distlock -n '__distlock_in options' -l kill-signal -x -a 'TERM INT HUP QUIT USR1 USR2 KILL' -d 'The stop signal'
complete -c distlock -n '__distlock_in options' -l jitter -x -d 'Wait a random time up to that long first'
complete -c distlock -n '__distlock_in options' -l label -x -d 'Text shown to operators'
complete -c distlock -n '__distlock_in options' -l require -x -a 'efficiency correctness' -d 'Refuse a backend of a lower class'
complete -c distlock -n '__distlock_in options' -l max-run -x -d 'Stop the command after that long'
complete -c distlock -n '__distlock_in options' -l min-hold -x -d 'Keep the lock for at least that long'
complete -c distlock -n '__distlock_in options' -l min-interval -x -d 'Skip if the last success is younger'
complete -c distlock -n '__distlock_in options' -l once -x -d 'Skip if done for this key'
complete -c distlock -n '__distlock_in options' -l once-keep -x -d 'How long a key is remembered'
complete -c distlock -n '__distlock_in options' -l mark -x -a 'success start' -d 'When the window closes'
complete -c distlock -n '__distlock_in options' -l skip-exit-code -x -d 'Exit code of a skipped run'
complete -c distlock -n '__distlock_in options' -l max-holders -x -d 'So many holders at once'
complete -c distlock -n '__distlock_in options' -l fail-open -d 'Run without a lock if the backend is not reached'
complete -c distlock -n '__distlock_in options' -l descendants -x -a 'leave kill wait' -d 'What a finished command left running'
complete -c distlock -n '__distlock_in options' -l log-to -x -a 'syslog journal (__fish_complete_path (commandline -ct))' -d 'A line for each event'
complete -c distlock -n '__distlock_in options' -l log-format -x -a 'text json' -d 'Of the lines of --log-to'
complete -c distlock -n '__distlock_in options' -l config -x -a '(__fish_complete_path (commandline -ct))' -d 'The configuration file'
complete -c distlock -n '__distlock_in options' -s v -l verbose -d 'Say more'
complete -c distlock -n '__distlock_in options' -s q -l quiet -d 'Say less'
complete -c distlock -n '__distlock_in options' -s x -s e -l exclusive -d 'No effect, for flock'
complete -c distlock -n '__distlock_in options' -s o -l close -d 'No effect, for flock'
complete -c distlock -n '__distlock_in options' -s h -l help -d 'Show help'

complete -c distlock -n '__distlock_in command' -a '(__distlock_command)'

"""Two processes and the child: the supervisor (S), the renewer (R), and what both need to end a process tree."""

"""The command line: one file a command, main.py the entry point."""

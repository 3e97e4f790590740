"""Nonsense from everywhere: what users type, what lies in files, what servers answer."""

"""distlock inside a Python program: a context in which the program holds a lock."""

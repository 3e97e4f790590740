"""distlock: flock(1) for a fleet. Importing this loads nothing else."""

__version__ = "0.1.0"

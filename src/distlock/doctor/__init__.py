"""What an operator should know before a job depends on a backend: measured, looked up, and what to do about it."""

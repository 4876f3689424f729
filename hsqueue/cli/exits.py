"""Exit statuses of every command."""

COMPLETE = 0
FAULT = 1
USAGE = 2
INCOMPLETE = 3

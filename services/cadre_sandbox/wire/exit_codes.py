"""Exit codes by which an interpreter says why it ended; the code may forge them, and would gain nothing."""

NO_JAIL = 70
"""It could not be locked in, or a program error."""

NO_TIME = 72
"""The limit came while it was tidying up."""

NO_MEMORY = 71
"""Not enough was left to go on."""

"""A run as people see it: its live delegation tree, its lines in a log, its steps as text."""

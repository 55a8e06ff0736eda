"""The metrics of a deployment: their names, what a journal entry adds to them, and the sums."""

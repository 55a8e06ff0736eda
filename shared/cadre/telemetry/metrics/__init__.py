"""Figures of a running deployment: their names, what a journal entry adds to them, where they go."""

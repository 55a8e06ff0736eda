"""Explain the entries of a tree of runs to people who watch: pure, the same entries always give the same."""

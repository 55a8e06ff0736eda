"""The kinds of agents: one folder each, found by name and version."""

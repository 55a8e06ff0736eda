"""Agents that stand for one elsewhere: they send their task to it by A2A, and wait for what it answers."""

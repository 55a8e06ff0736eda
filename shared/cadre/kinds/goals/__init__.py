"""Agents that work on goals, one tool in each iteration, after SuperAGI's direct execution."""

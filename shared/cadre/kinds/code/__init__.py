"""Agents whose model answers with Python, after smolagents' CodeAgent."""

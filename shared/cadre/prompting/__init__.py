"""Prompt files as text, and tools and team members as the text or the Python that a model reads."""

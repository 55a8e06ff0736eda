"""Prompt files rendered to text; tools and team members described to a model, as text or as Python."""

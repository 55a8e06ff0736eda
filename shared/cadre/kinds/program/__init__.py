"""Agents that are programs of any framework: what they ask of models, tools and members goes through a run."""

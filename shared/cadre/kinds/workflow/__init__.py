"""Agents that follow a graph of steps, after SuperAGI's tool workflows: a model decides only where a step asks it."""

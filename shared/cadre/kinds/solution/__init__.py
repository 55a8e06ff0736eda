"""Agents whose every answer is a solution: calls that it proposes, and an output; it is done when no call is left."""

"""Agents that carry out a plan: given, made by a model or edited by people; free steps run side by side."""

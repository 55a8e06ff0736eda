"""The verbs for a team and its services: start, create, list, draw, check."""

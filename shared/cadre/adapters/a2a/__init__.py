"""Agents elsewhere as agents of Cadre: the only room that is a client of A2A."""

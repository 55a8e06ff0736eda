"""Agents that speak Synadia's agent protocol over NATS as agents of Cadre: the only room that is a client of it."""

"""Programs that speak the Agent Client Protocol as agents of Cadre: the only room that is a client of it."""

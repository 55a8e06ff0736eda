"""A kind of agent from outside Cadre: it pauses between its steps, and may ask a person before its first calls."""

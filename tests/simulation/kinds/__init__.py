"""The simulated models and agents of each kind: one small module per kind."""

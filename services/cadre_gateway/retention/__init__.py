"""How long trees stay: what there is, and the removal of what is too old."""

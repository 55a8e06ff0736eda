"""A run's trace as a projection of its journal: pure, the same spans from the same entries, whoever makes them."""

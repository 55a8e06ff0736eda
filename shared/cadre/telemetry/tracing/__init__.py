"""A run's trace, projected from its journal: the same entries always give the same spans."""

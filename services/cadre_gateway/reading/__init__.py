"""The API's view of runs, agents and dead letters, read from journals and the registry."""

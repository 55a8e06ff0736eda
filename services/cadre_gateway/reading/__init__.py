"""What the API shows of runs, agents and dead letters, read from journals and the registry."""

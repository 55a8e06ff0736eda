"""The A2A protocol: each agent at an address of its own, a run as a task that any gateway tells of."""

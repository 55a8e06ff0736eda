"""The agent service: one process hosts one agent spec; a manager is an agent whose spec names a team."""

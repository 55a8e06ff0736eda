"""The AG-UI protocol: what an agent and its team do, as the events of a user interface."""

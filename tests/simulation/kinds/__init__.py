"""What the simulated models of each kind of agent say, and how its agents are drawn: one small module per kind."""

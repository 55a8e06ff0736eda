"""The operator: agents, teams, tools, models and definitions as objects of Kubernetes."""

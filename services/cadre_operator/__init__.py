"""The operator: agents, teams, tools, models and schedules as objects of Kubernetes."""

"""The deployment of a team: its files, its objects in Kubernetes, its NATS users and keys, its tenants."""

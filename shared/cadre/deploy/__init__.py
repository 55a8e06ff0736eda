"""How a team is deployed: its files, its objects in Kubernetes, its NATS users and keys, its tenants."""

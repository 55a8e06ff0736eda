"""A team as Kubernetes manifests and as NATS users. Pure."""

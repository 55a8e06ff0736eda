"""A team rendered as Kubernetes manifests. Pure: no file is read here."""

"""A team as Kubernetes manifests: rendered, and checked for what schemas cannot see. Pure: no file is read here."""

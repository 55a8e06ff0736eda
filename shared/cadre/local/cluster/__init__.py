"""A team as objects of Kubernetes: what they are, and what a namespace's objects amount to."""

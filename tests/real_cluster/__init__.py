"""The chart and the operator on a real Kubernetes: `make test-kubernetes`, with programs and images made here."""

"""The verbs for those who operate a deployment: streams, keys, manifests, dead letters, memory."""

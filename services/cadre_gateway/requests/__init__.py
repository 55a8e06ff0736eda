"""The contents of requests: bodies, parameters, origins, and problems as JSON."""

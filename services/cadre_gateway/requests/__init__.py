"""What a request may hold: bodies, parameters, origins, and problems as JSON."""

"""A hostile world around a deployment: its model, its connections, its people; judged by the journals alone."""

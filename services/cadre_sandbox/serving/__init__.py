"""Code calls from the bus: run in a warm interpreter, answered, handed over."""

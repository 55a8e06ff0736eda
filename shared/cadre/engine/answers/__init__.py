"""What the model answers: how it is read, held to a form, and checked."""

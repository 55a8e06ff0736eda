"""One iteration after SuperAGI: the model answers thoughts and one tool as JSON, and reads what that returned."""

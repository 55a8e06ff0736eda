"""A chat program that people use, in a real browser, with agents as its models: `make test-chat-ui`."""

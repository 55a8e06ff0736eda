"""Agent frameworks as clients of the gateway's door for OpenAI: `make test-clients`, in its own environment."""

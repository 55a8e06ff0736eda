"""Long tasks through A2A and MCP, with gateways killed on the way: one result each, by `make test-long`."""

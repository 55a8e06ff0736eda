"""The MCP server before the suite of the protocol: `make test-conformance`, with its own packages."""

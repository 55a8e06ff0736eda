"""A typed Python function as a tool: its declaration, loading, schema, call context and files."""

"""A typed Python function as a tool: declaring, loading and describing it, its context and its files."""

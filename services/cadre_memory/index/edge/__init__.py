"""The embedded engine: Qdrant's own, in a process of its own because it holds the interpreter in every call."""

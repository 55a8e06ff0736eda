"""Writes the documents that say what the code says: protocol, schemas, state diagram."""

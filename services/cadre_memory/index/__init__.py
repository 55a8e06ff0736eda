"""The index of memories over one of two engines: points, scopes, filters, schema."""

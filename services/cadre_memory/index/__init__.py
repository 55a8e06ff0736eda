"""The index of memories over one of two stores: points, scopes, filters, schema."""

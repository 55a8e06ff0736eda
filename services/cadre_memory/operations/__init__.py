"""Background work and the work of each call: writing, searching, re-embedding, expiry, migration."""

"""The verbs that try kept runs anew: replayed, verified, decided by other files, run again with another model."""

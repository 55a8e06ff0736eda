"""Programs as agents: their processes, the address that they ask, the record that they are answered from."""

"""Who may do what: keys, roles, scopes, and the gate that every request passes."""

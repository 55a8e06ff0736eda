"""The gateway's access control: keys, roles, scopes, and the gate that every request passes."""

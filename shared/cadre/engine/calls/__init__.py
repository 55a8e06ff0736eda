"""Calls of tools and members: checked, opened, held for approval, answered, revoked."""

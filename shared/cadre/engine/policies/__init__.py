"""Policies: where the values of a call come from, and what its rules say of it. Pure."""

"""Servers and services for tests, each a real process."""

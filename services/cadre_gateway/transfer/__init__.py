"""Runs as files: exported from one deployment, imported into another."""

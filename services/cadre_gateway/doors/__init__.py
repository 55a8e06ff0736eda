"""Doors: other protocols by which the same runs are started, followed and decided on."""

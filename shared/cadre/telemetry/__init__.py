"""Spans, metrics and logs out of journals. Pure."""

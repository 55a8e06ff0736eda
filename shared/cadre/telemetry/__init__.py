"""Spans, metrics and log lines, derived from journals. Pure."""

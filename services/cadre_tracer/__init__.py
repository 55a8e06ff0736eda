"""The tracer service: exports the spans of all runs, made from their journals."""

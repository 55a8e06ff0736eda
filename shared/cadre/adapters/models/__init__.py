"""Endpoints of language and embedding models: the only code that speaks their API."""

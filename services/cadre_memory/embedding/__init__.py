"""Texts as vectors: the embeddings of an endpoint or of a local model."""

"""Texts before they are embedded: chunks, stop words, the sparse vectors of BM25."""

"""Answers of real small models, and what agents of every kind make of them."""

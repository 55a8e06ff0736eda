"""The model's answers: reading them, holding them to a form, and checking them."""

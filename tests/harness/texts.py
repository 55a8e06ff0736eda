"""Texts for people: tests look for names, numbers and commands in them, no matter what the sentences say."""


def holds(text: str, *parts: object) -> bool:
    """Return whether the text has all of these in it."""
    return all(str(part) in text for part in parts)

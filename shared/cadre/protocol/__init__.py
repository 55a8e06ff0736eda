"""The data that services exchange and how it is addressed: messages, cards, subjects and ids."""

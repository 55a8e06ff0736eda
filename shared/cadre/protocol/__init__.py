"""What travels between services and how it is named: messages, cards, subjects and ids."""

"""A run's events from its beginning, then as they happen: feeds, followers, Server-Sent Events."""

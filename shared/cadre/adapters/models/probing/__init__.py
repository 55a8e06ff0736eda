"""What a model endpoint can do, found out by small requests through the real client."""

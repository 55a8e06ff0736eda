"""Find out the capabilities of a model endpoint by small requests through the real client."""

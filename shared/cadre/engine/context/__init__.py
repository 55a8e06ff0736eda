"""The context window of a run's model: tokens, images, compaction of what has no room."""

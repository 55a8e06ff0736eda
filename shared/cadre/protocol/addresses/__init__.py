"""The parts of the topology: templates of subjects, and generations of shards."""

"""What the topology is made of: templates of subjects, and generations of shards."""

"""Rollouts: how the revisions of an agent share its new runs, changed by people, and looked after until one is left."""

"""The verbs that check kept runs: replay, verify, decide by other files, run again with another model."""

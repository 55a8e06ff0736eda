"""The start of runs: admitted, submitted, forked, continued, with the files they are given."""

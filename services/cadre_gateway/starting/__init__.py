"""Where runs begin: admitted, submitted, forked, continued, with the files they are given."""

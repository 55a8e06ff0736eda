"""A team of real processes under load, killed and paused at random; afterwards everything is accounted for."""

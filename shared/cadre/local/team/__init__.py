"""A team's files: what they name, what they expect of each other, and what a cluster or this machine makes of them."""

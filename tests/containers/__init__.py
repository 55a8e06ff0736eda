"""The compose file with a real container engine: not among the tests that `make test` runs."""

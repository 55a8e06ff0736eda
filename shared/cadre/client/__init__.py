"""The gateway's HTTP API from Python: requests, streams of events, following runs."""

"""What the gateway does with runs: submit, look up, approve, fork, replay, erase, stream their events."""

"""Changes by people to runs that go on: decide on calls, send messages and signals, edit, cancel, erase."""

"""The sandbox as it is built: without a bus, on this machine's kernel."""

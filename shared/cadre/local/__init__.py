"""A whole team on this machine: the processes that `cadre up` starts, the NATS server and the files between them."""

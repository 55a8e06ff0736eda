"""What tests start: real servers and real services, each a process of its own."""

"""The frame of every process, and an agent as one."""

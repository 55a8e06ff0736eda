"""Locks a process in: namespaces, mounts, Landlock and seccomp, by the kernel's own calls."""

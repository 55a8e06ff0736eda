"""The machine that this is, and those whose system calls the jail knows."""

import platform

MACHINES = ("x86_64", "aarch64")
MACHINE = platform.machine()

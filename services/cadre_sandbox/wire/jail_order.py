"""What the outside asks the zygote for, one jail with its tier and its limits, and by what exit code that ends."""

import platform
from dataclasses import dataclass

MACHINES = ("x86_64", "aarch64")
MACHINE = platform.machine()

NO_JAIL = 70
"""Exit code of an interpreter that could not be locked in, or of a program error. Code may forge these, and would gain
nothing."""
NO_TIME = 72
"""Exit code: the limit came while it was tidying up."""
NO_MEMORY = 71
"""Exit code: not enough was left to go on."""

OWN_TASKS = 2
"""Tasks of a jail's namespace that are not the code's: the interpreter and the process that waits for it."""


@dataclass(frozen=True, slots=True)
class JailOrder:
    """One jail to be made."""

    number: int
    """Names the jail in what the zygote says of it."""
    tier: str
    """`ns` or `landlock`."""
    uid: int
    """The user that the code runs as, when the zygote is root."""
    scratch: str
    """The working directory in tier landlock; empty in tier ns, which has one of its own."""
    memory_bytes: int
    """Address space in all."""
    file_mb: int
    threads: int

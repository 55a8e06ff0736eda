"""What the outside asks the zygote for: one jail, with its tier and its limits."""

from dataclasses import dataclass

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

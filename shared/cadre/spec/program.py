"""The function that an agent is, as its file names it, and where its runs are taken from."""

from typing import Any

from cadre.protocol.usage import Seconds
from cadre.spec.kinds import Section


class FunctionSpec(Section, frozen=True, kw_only=True, omit_defaults=True):
    """A function of any framework, and how its processes are kept."""

    main: str = ""
    """The function, as `file.py:name` or `package.module:name`; files and modules are looked for in the folder of the
    agent's file."""
    python: str = ""
    """The Python that has the program's packages, relative to that folder; "": the one that Cadre runs in."""
    hold: Seconds = 60.0
    """Seconds that a process waits for an answer; then it ends, and the answer begins another one."""
    processes: int = 16
    """Processes at once in each replica."""


def program_of(spec: Any) -> FunctionSpec:
    """Return the section of an agent's spec; one that names no function where the spec has none."""
    return spec.section(FunctionSpec) or FunctionSpec()


def pool_of(agent: str) -> str:
    """Return the name of the queue that the agent's program hosts take from, as sandboxes do from that of a pool."""
    return f"program-{agent}"[:64]

"""The sandbox's interface: requests, calls, results, outcomes, limits."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from cadre.protocol.code import BASE_IMPORTS
from cadre_sandbox.wire.values import Value

Tier: TypeAlias = Literal["ns", "landlock"]
"""ns: a kernel of namespaces around the process, nothing of the host in sight. landlock: the host's files are
out of reach, though not out of sight. Both with seccomp allow-list and resource limits."""

TIERS: tuple[Tier, ...] = ("ns", "landlock")
"""Best first. Below the last one code is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLimits:
    """The limits of one block.

    A sandbox has the most that any request gets. Memory, threads and files stay those of a session's first block.
    """

    seconds: float = 30.0
    """Time for the block's own computing and the saving of its variables; waiting for calls is free."""
    cpu_seconds: float | None = None
    """CPU time of all threads together; None: as `seconds`."""
    memory_mb: int = 512
    """Memory beyond what the bare interpreter needs; less than 64 is of little use."""
    threads: int = 32
    """Most threads; the kernel enforces it in a jail with its own users, else a count several times a second."""
    file_mb: int = 64
    """One file, and all files together."""
    output_chars: int = 20_000
    print_chars: int = 50_000
    snapshot_mb: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A tool or team member that the code may call by its name."""

    name: str
    signature: str
    """The signature as Python writes it: `(query: str, limit: int = 10) -> str`. A name before it is ignored."""
    kind: Literal["tool", "member"] = "tool"
    doc: str = ""


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call that the code waits for."""

    name: str
    arguments: Mapping[str, Value]
    """Values by parameter name; those left to their defaults are absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """The result of a call. With `error` the call raises `CallError` inside the code; with `raised`, the name of one of
    Python's own exceptions, code can catch it by that too."""

    value: Value = None
    error: str | None = None
    raised: str = ""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One yield of the past and its results, for replay."""

    calls: Sequence[FunctionCall]
    results: Sequence[CallResult]
    clock: Sequence[float] = ()
    """`Yielded.clock`: what the code read from the clock before these calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRequest:
    """One block of code to run.

    A fresh interpreter first restores `snapshot` (state after the block before). With `recorded`, calls are answered
    from there, in order, and must be the same calls; the first beyond them is yielded.
    """

    code: str
    snapshot: bytes | None = field(default=None, repr=False)
    recorded: Sequence[Exchange] = ()
    variables: Mapping[str, Value] = field(default_factory=dict)
    functions: Sequence[Function] = ()
    authorized_imports: Sequence[str] = tuple(BASE_IMPORTS)
    """`pandas` means it and all below it, `os.path` that and below; `*` means any."""
    authorized_builtins: Sequence[str] = ()
    """Builtins that are refused otherwise: open, eval, exec, compile, …; `*` allows them all, and every attribute."""
    final_answer: bool = True
    """True if the code may call `final_answer(value)`."""
    seed: str = ""
    """Same seed, same chance: of random, uuid, secrets, numpy. Different for each block, the same in its replay."""
    limits: BlockLimits = field(default_factory=BlockLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """The resources that the block has used, from its start in this interpreter to this outcome, without the waits for
    calls."""

    seconds: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Yielded:
    """The code waits for these calls; `Session.resume` takes their results, in the same order."""

    calls: tuple[FunctionCall, ...]
    clock: tuple[float, ...]
    """Keep it with the calls: a replay needs it (`Exchange.clock`)."""
    logs: str
    tier: Tier
    used: Used


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockEnd:
    """The part that all ends of blocks have in common."""

    logs: str
    snapshot: bytes | None = field(repr=False)
    """The variables now, for the next block: those of before when the interpreter did not survive this one. None when
    none were ever saved."""
    notes: tuple[str, ...] = ()
    """Messages to the model about values that could not be kept, and the reasons."""
    tier: Tier
    used: Used
    alive: bool = False
    """False: go on with a new session and the snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished(BlockEnd):
    """The block ended, or gave the final answer."""

    output: Value
    """Value of the last expression, or the final answer; what JSON cannot say, or is too large, is there
    as its text."""
    text: str
    """The same as a model should read it, cut to `output_chars`; empty for None."""
    is_final_answer: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(BlockEnd):
    """The block raised, was refused, or was stopped; for the model to read and repair."""

    error: str
    """The exception's type, or one of: NotAllowed, TimeLimit, CpuLimit, FileLimit, ThreadLimit, Crashed,
    ReplayDiverged, SnapshotUnreadable."""
    message: str
    line: int | None = None
    source: str | None = None
    """The failing line of the block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterpreterLost:
    """The interpreter is gone and the code is not to blame: run the block again, in a new session, with what is
    recorded.

    Count how often: code can make its own doing look like this.
    """

    reason: str


Outcome: TypeAlias = Yielded | Finished | Failed | InterpreterLost


@dataclass(frozen=True, slots=True, kw_only=True)
class Python:
    """The interpreter that runs the code."""

    executable: str = sys.executable
    """Its installed packages are what the code may import, where authorized."""
    modules: Sequence[str] = ()
    """Imported once for all, such as numpy and pandas: their first import inside costs tenths of a second."""
    uid: int | None = None
    """The user it runs as; only root may say so."""


class SandboxError(Exception):
    """The sandbox itself cannot work: there is no isolation, or a program error in its use."""

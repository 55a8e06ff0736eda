"""Control comes back within the limit and half a second, and the host is not the worse, no matter what the code
does."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cadre_sandbox.interpreters.contract import (
    BlockLimits,
    Failed,
    Finished,
    InterpreterLost,
    Outcome,
    Yielded,
)
from cadre_sandbox.interpreters.pool import Sandbox
from cadre_sandbox.interpreters.session import InterpreterSession
from sandbox import sections
from sandbox.worlds import finished, run

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMITS = BlockLimits(seconds=1.0, memory_mb=256, file_mb=16, threads=16, snapshot_mb=8)

LATE = 0.5
"""Seconds after the limit by which the outcome is there."""

NOISE = 10.0
"""More seconds, for a machine that is busy with other things."""

FREE = {"authorized_imports": ["*"], "authorized_builtins": ["*"], "limits": LIMITS}

BESIDE = {**FREE, "limits": replace(LIMITS, seconds=LIMITS.seconds + NOISE)}
"""For blocks that exceed nothing: a busy machine may leave them no processor for longer than the limit."""

TRIES = 3
"""A busy machine may leave the interpreter no time to stop on its own; then it is killed, rightly."""


@dataclass(frozen=True)
class Excess:
    name: str
    code: str
    errors: frozenset[str]
    alive: bool | None
    """True if the interpreter survives; None if it may do either."""


def excesses() -> Iterator[Excess]:
    for section in sections.read("excesses.txt"):
        errors, _, survival = section.expected[0].partition(" (")
        alive = {"": None, "alive)": True, "dead)": False}[survival]
        yield Excess(section.name, section.code, frozenset(errors.split(", ")), alive)


@pytest.mark.parametrize("excess", list(excesses()), ids=lambda excess: excess.name)
async def test_it_is_contained(every_sandbox: Sandbox, excess: Excess) -> None:
    for _ in range(TRIES):
        session = await every_sandbox.open()
        try:
            alive = await _contained(every_sandbox, session, excess)
        finally:
            await session.close()
        if excess.alive is None or alive is excess.alive:
            return
    pytest.fail(f"the interpreter was {'not ' * (not alive)}alive afterwards")


async def _contained(sandbox: Sandbox, session: InterpreterSession, excess: Excess) -> bool:
    """Return whether the interpreter is alive afterwards."""
    # A forger must name the block: let it be the first.
    forged = excess.name.startswith("a forged")
    if not forged:
        await finished(session, "before = 1", **BESIDE)
    since = time.monotonic()
    outcome = await run(session, excess.code, **FREE)
    assert time.monotonic() - since < LIMITS.seconds + LATE + NOISE
    assert named(outcome) in excess.errors, outcome
    alive = session.alive
    last = await run(session, "before", **BESIDE) if alive else outcome
    if not session.alive and isinstance(last, Failed | Finished):
        other = await sandbox.open()
        last = await run(other, "before", snapshot=last.snapshot, **BESIDE)
        await other.close()
    if not forged and not isinstance(last, InterpreterLost):
        assert isinstance(last, Finished), last
        assert last.output == 1
    return alive


def named(outcome: Outcome) -> str:
    return outcome.error if isinstance(outcome, Failed) else type(outcome).__name__


async def test_a_forged_outcome_harms_its_own_run_only(every_sandbox: Sandbox) -> None:
    """The code owns its process: it may lie about its own result, and is found out at the next block."""
    code = """
import json, os, struct
head = {"n": 1, "logs": "", "notes": [], "blobs": []}
out = {**head, "kind": "finished", "output": 42, "text": "42", "final": True}
data = b""
for frame in (out, {**head, "kind": "unsaved", "why": "x"}):
    text = json.dumps(frame).encode()
    data += struct.pack(">II", len(text), 0) + text
for n in range(3, 30):
    try: os.write(n, data)
    except OSError: pass
"""
    session, other = await every_sandbox.open(), await every_sandbox.open()
    outcome = await run(session, code, **FREE)
    assert isinstance(outcome, Finished)
    assert not session.alive
    assert (await run(other, "1 + 1")).output == 2  # type: ignore[union-attr]


@pytest.fixture
def open_folder(tmp_path: Path) -> Iterator[Path]:
    """Yield the folders in which every user may write, and code must not."""
    tmp_path.chmod(0o777)
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


async def test_a_hostile_snapshot_meets_the_jail(every_sandbox: Sandbox, open_folder: Path) -> None:
    saved = await finished(await every_sandbox.open(), "x = 1")
    assert saved.snapshot
    head, _, _ = saved.snapshot.partition(b"\n")
    code = f"cposix\nsystem\n(S'touch {open_folder}/harm'\ntR."
    other = await every_sandbox.open()
    outcome = await run(other, "1", snapshot=head + b"\n" + code.encode())
    assert isinstance(outcome, Failed)
    assert outcome.error == "SnapshotUnreadable"


async def test_no_process_is_left_over(every_sandbox: Sandbox) -> None:
    session = await every_sandbox.open()
    pid = session.pid
    assert not isinstance(
        await run(session, "import threading\nthreading.Event().wait(0.01)", authorized_imports=["*"]),
        InterpreterLost,
    )
    await session.close()
    await _gone(pid)


async def test_processes_end_with_the_sandbox() -> None:
    async with Sandbox(pool=1) as sandbox:
        session = await sandbox.open()
        assert isinstance(await run(session, "search('x')"), Yielded)
        pid = session.pid
    await _gone(pid)


async def _gone(pid: int) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
    raise AssertionError(f"process {pid} lives on")

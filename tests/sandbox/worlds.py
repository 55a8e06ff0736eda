"""The ways in which the sandbox can be run on this machine: tiers, and users."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cadre_sandbox.interpreters.contract import (
    BlockLimits,
    BlockRequest,
    Failed,
    Finished,
    Function,
    Outcome,
    Python,
    Yielded,
)
from cadre_sandbox.interpreters.pool import Sandbox
from cadre_sandbox.interpreters.session import InterpreterSession
from cadre_sandbox.jail.confinement import jail

ORDINARY_USER = 20_001

SEARCH = Function(name="search", signature="(query: str, limit: int = 10) -> str", doc="Searches.")
VISIT = Function(name="visit", signature="visit(url: str, **headers: str) -> dict")


@dataclass(frozen=True)
class World:
    name: str
    options: dict[str, Any]
    lacks: str = ""
    """The reason for not trying it here."""

    @property
    def uid(self) -> int | None:
        """Of the code, where it is not this process's."""
        python: Python = self.options.get("python", Python())
        return python.uid

    def sandbox(self, **more: Any) -> Sandbox:
        return Sandbox(**{"most": BlockLimits(seconds=20), **self.options, **more})


def _as_ordinary_user() -> dict[str, Any] | None:
    """A zygote of another user, where this one is root and there is a Python which others may run."""
    if os.geteuid() != 0:
        return {}
    for name in (
        "/usr/bin/python3.11",
        "/usr/bin/python3.12",
        "/usr/bin/python3.13",
        "/usr/local/bin/python3",
    ):
        python = shutil.which(name)
        if python and _runs(python):
            return {"python": Python(executable=python, uid=ORDINARY_USER)}
    return None


def _runs(python: str) -> bool:
    modern = "import sys; sys.exit(sys.version_info < (3, 11))"
    return subprocess.run([python, "-c", modern], user=ORDINARY_USER, check=False).returncode == 0


def worlds() -> list[World]:
    user = _as_ordinary_user()
    stranger = "" if user is not None else "no Python that another user may run"
    old = "" if jail.version() >= jail.ENOUGH else "this kernel's Landlock is too old"
    return [
        World("namespaces", {"minimum": "ns"}),
        World("namespaces of a user", {"minimum": "ns", **(user or {})}, stranger),
        World("landlock", {"best": "landlock", **(user or {})}, stranger or old),
    ]


def open_to_all(folder: Path) -> None:
    """The folder and the way to it: what code does not reach there, it is the jail that forbids."""
    for part in (folder, *folder.parents):
        if not part.stat().st_mode & 0o005:
            part.chmod(0o755)


async def run(session: InterpreterSession, code: str, **more: Any) -> Outcome:
    return await session.execute(BlockRequest(code=code, functions=(SEARCH, VISIT), **more))


async def finished(session: InterpreterSession, code: str, **more: Any) -> Finished:
    outcome = await run(session, code, **more)
    assert isinstance(outcome, Finished), outcome
    return outcome


async def failed(session: InterpreterSession, code: str, **more: Any) -> Failed:
    outcome = await run(session, code, **more)
    assert isinstance(outcome, Failed), outcome
    return outcome


async def yielded(session: InterpreterSession, code: str, **more: Any) -> Yielded:
    outcome = await run(session, code, **more)
    assert isinstance(outcome, Yielded), outcome
    return outcome


def names(calls: Sequence[Any]) -> list[str]:
    return [call.name for call in calls]

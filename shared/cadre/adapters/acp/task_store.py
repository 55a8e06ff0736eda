"""The tasks of a program as an executor knows them, in a folder that outlives it."""

import fcntl
import os
import shutil
import time
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from cadre.protocol.usage import Usage

_KEPT_SECONDS = 30 * 86_400.0
"""The time for which a task is kept after its last write."""


class Asked(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A permission that the program asks for."""

    call: str
    tool: str
    arguments: dict[str, Any] = {}

    def is_like(self, other: "Asked") -> bool:
        """Return whether it is about the same thing, in another process perhaps."""
        return (self.tool, self.arguments) == (other.tool, other.arguments)


class PermissionRuling(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A person's answer to a permission request."""

    asked: Asked
    is_yes: bool
    feedback: str = ""


Phase = Literal["queued", "prompted", "asking", "over", "unknown"]
"""Nothing was sent to the program; something was; it waits for a person; its end is known; its end is unknown."""


class TaskRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One task."""

    task: str
    blocks: list[dict[str, Any]]
    """The prompt."""
    folder: str
    messages: list[str] = []
    """Ids of the messages that were taken."""
    phase: Phase = "queued"
    session: str = ""
    reopens: Literal["", "load", "resume"] = ""
    """The method by which the program reopens a session; "" when it cannot."""
    deaths: int = 0
    asked: list[Asked] = []
    rulings: list[PermissionRuling] = []
    """Answers to permission requests that no longer wait: the program asks again."""
    words: list[str] = []
    """Messages that the program has not received yet."""
    tokens: tuple[int, int] = (0, 0)
    """Input and output, as the program counts them."""
    usage: Usage = Usage()
    end: dict[str, Any] = {}
    """Fields of the `RemoteTask` once it is over."""
    answer: str = ""


class TaskStore:
    """The folder. Of several processes one has it, until it ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock: int | None = None

    def is_mine(self) -> bool:
        """Return whether this process has the folder, or could take it."""
        if self._lock is not None:
            return True
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        self._lock = lock
        self._sweep()
        return True

    def files_of(self, task: str) -> Path:
        """Return a folder for the files that a task is given."""
        return self.folder / "files" / quote(task, safe="")

    def read(self, task: str) -> TaskRecord | None:
        """Return the task as it was written last; None for one that is not known."""
        try:
            return msgspec.json.decode(self._place(task).read_bytes(), type=TaskRecord)
        except FileNotFoundError:
            return None

    def write(self, record: TaskRecord) -> None:
        """Return once it is on the disk."""
        place = self._place(record.task)
        fresh = place.with_suffix(".new")
        with fresh.open("wb") as file:
            file.write(msgspec.json.encode(record))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(place)

    def _place(self, task: str) -> Path:
        return self.folder / f"{quote(task, safe='')}.json"

    def _sweep(self) -> None:
        for place in self.folder.glob("*.json"):
            if place.stat().st_mtime < time.time() - _KEPT_SECONDS:
                place.unlink()
        for files in (self.folder / "files").glob("*"):
            if not (self.folder / f"{files.name}.json").exists():
                shutil.rmtree(files)

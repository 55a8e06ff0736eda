"""Bounds how many requests are made of one model at once: by a process, and by all processes of a user on a machine."""

import asyncio
import fcntl
import hashlib
import logging
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

log = logging.getLogger("cadre.model")

_POLL_SECONDS = 0.1
"""Between two looks for a slot that another process holds."""


class RequestSlots:
    """The slots of all models, by the URL and the name of the model.

    Within a process they are given first come, first served. Between processes a slot is a locked file, which the
    kernel unlocks when its process dies; where no such file can be created, each process counts on its own.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or Path(tempfile.gettempdir()) / f"cadre-model-slots-{os.getuid()}"
        self._slots: dict[tuple[str, str], asyncio.Semaphore] = {}
        self._alone = False
        self.waiting = 0
        """Requests that wait for a slot at the moment."""

    @asynccontextmanager
    async def slot(self, url: str, name: str, parallel: int | None) -> AsyncIterator[None]:
        """Wait for one of the model's `parallel` slots and hold it; None is no bound. Who asks first for a model
        sets their number in its process."""
        if parallel is None:
            yield
            return
        key = (url.rstrip("/"), name)
        slots = self._slots.setdefault(key, asyncio.Semaphore(parallel))
        self.waiting += 1
        held: int | None = None
        try:
            await slots.acquire()
            try:
                held = await self._lock_file("\n".join(key), parallel)
            except BaseException:
                slots.release()
                raise
        finally:
            self.waiting -= 1
        try:
            yield
        finally:
            if held is not None:
                os.close(held)
            slots.release()

    async def _lock_file(self, key: str, parallel: int) -> int | None:
        """Return the descriptor of a locked file, which holds the slot until it is closed; None where there are no
        files."""
        name = hashlib.sha256(key.encode()).hexdigest()[:32]
        while not self._alone:
            try:
                self._folder.mkdir(mode=0o700, exist_ok=True)
                if self._folder.stat().st_uid != os.getuid():
                    raise PermissionError(f"{self._folder} is another user's")
                for number in range(parallel):
                    if (held := _locked(self._folder / f"{name}.{number}")) is not None:
                        return held
            except OSError as error:
                log.warning("model.parallel counts for this process alone: %s", error)
                self._alone = True
                break
            await asyncio.sleep(_POLL_SECONDS)
        return None


def _locked(file: Path) -> int | None:
    """Return the file's descriptor, locked; None while another process holds it. Raises OSError."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor

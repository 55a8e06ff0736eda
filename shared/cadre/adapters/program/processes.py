"""The process that has imported a program, and those that it forks for the lives of runs."""

import asyncio
import contextlib
import json
import logging
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cadre.adapters.program
from cadre.errors import RetryableError, SetupError
from cadre.settings import child_environment, without_secrets

log = logging.getLogger("cadre.program")

CHILD_FOLDER = Path(cadre.adapters.program.__file__).parent / "child"
"""The folder with `cadre_program.py`, the part of Cadre that is on the program's path."""

_KILL_SECONDS = 5.0
"""From SIGTERM to SIGKILL."""

_LOCAL = "127.0.0.1,localhost"
_LINE_BYTES = 1 << 20


class ProgramProcesses:
    """The processes of one program.

    Args:
        main: the function, as the agent's file names it.
        python: the Python that has the program's packages, relative to the folder; "": this one.
        folder: that of the agent's file.
        environment: variables for the process that imports the program.
        keys: names of variables that hold keys of models: the program has none of them.
        ended: called with the name of a life whose process has ended, and why.
    """

    def __init__(
        self,
        main: str,
        python: str,
        folder: Path,
        environment: dict[str, str],
        keys: tuple[str, ...],
        ended: Callable[[str, str], None],
    ) -> None:
        self._main = main
        self._python = python
        self._folder = folder
        self._environment = environment
        self._keys = keys
        self._ended = ended
        self._zygote: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._lives: set[str] = set()
        self._kills: dict[str, asyncio.TimerHandle] = {}
        self._starting = asyncio.Lock()

    def check(self) -> str:
        """Return the path of the Python. Raises SetupError."""
        if not self._main:
            raise SetupError("program.main names no function: write `file.py:name` or `package.module:name`")
        if not self._python:
            return sys.executable
        own = self._folder / self._python
        found = str(own) if own.is_file() else shutil.which(self._python)
        if found is None:
            raise SetupError(f"there is no Python {own}: program.python names the one of the program")
        return found

    async def start(self) -> None:
        """Have the program imported. Raises SetupError if it cannot be."""
        async with self._starting:
            if self._zygote is None or self._zygote.returncode is not None:
                await self._start()

    async def begin(self, life: str, order: dict[str, Any]) -> None:
        """Fork a process for a life. Raises RetryableError."""
        try:
            await self.start()
        except SetupError as error:
            raise RetryableError(str(error)) from error
        self._lives.add(life)
        self._say({"life": life, **order})

    def end(self, life: str) -> None:
        """End the process of a life: it has a few seconds to leave things in order."""
        if life not in self._lives or life in self._kills:
            return
        self._say({"kill": life, "signal": int(signal.SIGTERM)})
        loop = asyncio.get_running_loop()
        self._kills[life] = loop.call_later(_KILL_SECONDS, self._say, {"kill": life, "signal": int(signal.SIGKILL)})

    async def close(self) -> None:
        """End all processes at once."""
        for handle in self._kills.values():
            handle.cancel()
        zygote, self._zygote = self._zygote, None
        if zygote is None:
            return
        if zygote.stdin is not None:
            zygote.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_KILL_SECONDS):
                await zygote.wait()
        if zygote.returncode is None:
            zygote.kill()
        if self._reading is not None:
            await self._reading

    async def _start(self) -> None:
        python = self.check()
        inherited = {
            name: value
            for name, value in without_secrets(child_environment(), *self._keys).items()
            if not name.startswith(("CADRE_", "PYTHONHASHSEED"))
        }
        path = [str(CHILD_FOLDER), *([inherited["PYTHONPATH"]] if inherited.get("PYTHONPATH") else [])]
        bypass = {
            name: ",".join([*([inherited[name]] if inherited.get(name) else []), _LOCAL])
            for name in ("NO_PROXY", "no_proxy")
        }
        own = {
            "PYTHONPATH": ":".join(path),
            "PYTHONHASHSEED": "0",
            "PYTHONUNBUFFERED": "1",
            # What was recorded would be exported again by each life.
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
        }
        zygote = await asyncio.create_subprocess_exec(
            *(python, str(CHILD_FOLDER / "cadre_program.py"), self._main, str(self._folder)),
            cwd=self._folder,
            env={**inherited, **bypass, **own, **self._environment},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES,
        )
        assert zygote.stdout is not None
        if not await zygote.stdout.readline():
            await zygote.wait()
            raise SetupError(f"{self._main} cannot be imported with {python}: what it said stands above")
        self._zygote = zygote
        self._reading = asyncio.create_task(self._read(zygote), name="program processes")

    async def _read(self, zygote: asyncio.subprocess.Process) -> None:
        assert zygote.stdout is not None
        while line := await zygote.stdout.readline():
            given = json.loads(line)
            if "ended" in given:
                status = given["status"]
                how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
                self._gone(given["ended"], f"its process {how}")
        await zygote.wait()
        for life in [*self._lives]:
            self._gone(life, f"the process that had imported it ended with status {zygote.returncode}")

    def _gone(self, life: str, why: str) -> None:
        self._lives.discard(life)
        if (handle := self._kills.pop(life, None)) is not None:
            handle.cancel()
        log.debug("%s: %s", life, why)
        self._ended(life, why)

    def _say(self, order: dict[str, Any]) -> None:
        zygote = self._zygote
        if zygote is not None and zygote.returncode is None and zygote.stdin is not None:
            zygote.stdin.write(json.dumps(order).encode() + b"\n")

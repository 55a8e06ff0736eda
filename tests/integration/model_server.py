"""The scripted model as a process of its own, for tests that ask it over HTTP."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

ROOT = Path(__file__).resolve().parents[2]


class ModelServer:
    """A running scripted model. `url` ends in /v1."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._base = url.removesuffix("/v1")

    def journal(self) -> list[dict[str, Any]]:
        """The lines of the journal, once no request is open any more."""
        answer = httpx2.get(f"{self._base}/script/journal", params={"settled": 10}, timeout=15)
        answer.raise_for_status()
        lines: list[dict[str, Any]] = answer.json()
        return lines

    def reset(self) -> None:
        httpx2.post(f"{self._base}/script/reset", timeout=15).raise_for_status()


@contextmanager
def running_model(*options: str | Path, **environment: str) -> Iterator[ModelServer]:
    """Starts `scripted-model` with these options on a free port and stops it at the end."""
    path = os.pathsep.join([str(ROOT / "shared"), str(ROOT / "services")])
    process = subprocess.Popen(
        [sys.executable, "-m", "cadre_scripted_model", "--port", "0", *map(str, options)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, f"the scripted model did not start: {line!r}"
        yield ModelServer(found[0])
    finally:
        process.terminate()
        assert process.wait(timeout=10) == 0
        process.stdout.close()

"""The scripted model as a process of its own: an OpenAI-compatible endpoint that plays the replies of a script."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from cadre.errors import SetupError
from cadre.settings import child_environment


class ModelServer:
    """A running scripted model. `url` is its base URL, for `CADRE_MODEL_URL`, and ends in /v1."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._base = url.removesuffix("/v1")

    def journal(self) -> list[dict[str, Any]]:
        """The requests so far, each with the rule that answered it. Waits until none is open any more."""
        answer = httpx2.get(f"{self._base}/script/journal", params={"settled": 10}, timeout=15)
        answer.raise_for_status()
        lines: list[dict[str, Any]] = answer.json()
        return lines

    def reset(self) -> None:
        """Clears the journal and begins the script anew."""
        httpx2.post(f"{self._base}/script/reset", timeout=15).raise_for_status()


@contextmanager
def running_model(*options: str | Path, **environment: str) -> Iterator[ModelServer]:
    """Starts `cadre scripted-model` with these options on a free port, and stops it at the end.

    Raises SetupError when it does not start; it says why on standard error.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "cadre_scripted_model", "--port", "0", *map(str, options)],
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(**environment),
    )
    assert process.stdout is not None
    with process.stdout as output:
        try:
            line = output.readline()
            found = re.search(r"http://\S+", line)
            if found is None:
                raise SetupError(f"the scripted model did not start: it said {line!r}")
            yield ModelServer(found[0])
        finally:
            process.terminate()
            code = process.wait(timeout=10)
    if code:
        raise RuntimeError(f"the scripted model ended with exit code {code}")

"""A container engine and the compose project that is tried on it."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PROJECT = "cadre-test-compose"
MINUTES = 15


class NoEngine(Exception):
    """There is nothing to try it on; says what is missing."""


class Compose:
    """`docker compose` on the shipped file, under a project name and its own host port."""

    def __init__(self, overrides: Sequence[Path], environment: dict[str, str]) -> None:
        files = [ROOT / "docker-compose.yml", *overrides]
        self._argv = ["docker", "compose", "-p", PROJECT, *(part for f in files for part in ("-f", str(f)))]
        self._environment = environment

    def __call__(self, *arguments: str) -> str:
        return _output([*self._argv, *arguments], self._environment)

    def docker(self, *arguments: str, given: str = "") -> str:
        """Return what `docker` prints; `given` is its input."""
        return _output(["docker", *arguments], self._environment, given)

    def services(self) -> list[str]:
        return self("config", "--services").split()

    def inside(self, service: str, program: str) -> Any:
        """Return what a Python program prints, as JSON, when it is run in the service's container."""
        return json.loads(self("exec", "-T", service, "python", "-c", program))

    def exit_code(self, service: str) -> int:
        container = self("ps", "--all", "--quiet", service).strip()
        return int(_output(["docker", "inspect", "-f", "{{.State.ExitCode}}", container], self._environment))


def find_engine(environment: dict[str, str]) -> str:
    """The engine's version. Raises NoEngine."""
    for argv in (["docker", "compose", "version"], ["docker", "version", "-f", "{{.Server.Version}}"]):
        try:
            done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)
        except FileNotFoundError as error:
            raise NoEngine("there is no `docker` on the PATH") from error
        if done.returncode:
            why = " ".join((done.stderr or done.stdout).split())
            raise NoEngine(f"`{' '.join(argv)}` says: {why}")
    return done.stdout.strip()


def _output(argv: Sequence[str], environment: dict[str, str], given: str = "") -> str:
    done = subprocess.run(
        argv,
        cwd=ROOT,
        env=environment,
        input=given,
        stdout=subprocess.PIPE,
        text=True,
        timeout=60 * MINUTES,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"test-compose: `{' '.join(argv)}` ended with {done.returncode}")
    return done.stdout

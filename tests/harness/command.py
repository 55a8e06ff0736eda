"""The command line as its users have it: a process, its exit code, its two streams."""

import os
import subprocess
import sys
from pathlib import Path

from harness import forks
from harness.patience import SECONDS, patience
from harness.stack import Stack

MODULE = "cadre.cli.main"
CADRE = [sys.executable, "-m", MODULE]


class Commands:
    """`cadre …` in its own folder, with an environment."""

    def __init__(self, folder: Path, environment: dict[str, str], ends_within: float = SECONDS) -> None:
        self.folder = folder
        self._environment = environment
        self._ends_within = ends_within

    def __call__(self, *arguments: object, said: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs the command to its end; `said` is its standard input."""
        return forks.run(
            [MODULE, *map(str, arguments)],
            {**self._environment, **environment},
            self.folder,
            said,
            patience(self._ends_within),
        )

    def start(self, *arguments: object, **environment: str) -> subprocess.Popen[str]:
        """Starts the command; its streams are pipes."""
        return subprocess.Popen(
            self._argv(arguments),
            cwd=self.folder,
            env={**self._environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @staticmethod
    def _argv(arguments: tuple[object, ...]) -> list[str]:
        return [*CADRE, *map(str, arguments)]


def run_demo(team: Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """`cadre up TEAM --run` in the folder, which must pass."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(("CADRE_", "OTEL_"))}
    known["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{known['PATH']}"
    done = Commands(folder, known | environment, 300)("up", team, "--run", "--timeout", 180)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def commands_of(stack: Stack, folder: Path) -> Commands:
    """Commands that talk to the stack's gateway and NATS."""
    return Commands(folder, {**stack.environment, "CADRE_GATEWAY_URL": stack.services["gateway"].url})


def only_line(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The one line on stderr of a command that failed with this exit code."""
    assert done.returncode == code, (done.returncode, done.stderr)
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("cadre: "), done.stderr
    assert "defect" not in lines[0]
    return lines[0]

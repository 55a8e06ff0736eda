"""Runs the README's own team as it stands there: its files, and its commands word for word, in a folder of its own.

`python readme.py README.md lacking` checks instead that an installation without any extra names, in one line, the
command that installs what is missing.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PATIENCE_SECONDS = 180
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

STARTED = re.compile(r"^gateway  |^model .* at http|: ready$", re.MULTILINE)
"""What a command of the README says once the next one can be given."""


def team(readme: str, folder: Path) -> list[str]:
    """Writes the README's files into the folder; returns its commands."""
    for name, text in re.findall(r"^```(?:python|yaml)\n# (\S+)\n(.*?)^```", readme, re.MULTILINE | re.DOTALL):
        (folder / name).write_text(text)
    return re.findall(r"^\$ (.*)$", readme, re.MULTILINE)


def run_team(readme: str) -> None:
    """Gives the commands, each in a terminal of its own, and checks what the last one answers."""
    with tempfile.TemporaryDirectory() as place:
        folder, running = Path(place), []
        *services, task = team(readme, folder)
        assert services, "the README has no team"
        try:
            for number, command in enumerate(services):
                log = folder / f"{number}.log"
                with log.open("w") as output:
                    running.append(
                        subprocess.Popen(
                            command,
                            shell=True,
                            cwd=folder,
                            env=ENVIRONMENT,
                            stdout=output,
                            stderr=output,
                            start_new_session=True,  # the shell does not hand signals on
                        )
                    )
                until_started(command, running[-1], log)
            done = subprocess.run(
                task,
                shell=True,
                cwd=folder,
                env=ENVIRONMENT,
                capture_output=True,
                text=True,
                timeout=PATIENCE_SECONDS,
            )
            assert done.returncode == 0, done.stderr + "".join(log.read_text() for log in folder.glob("*.log"))
            assert "count_words" in done.stdout, done.stdout
            print(f"readme: {len(services) + 1} commands; the answer: {done.stdout.strip()}")
        finally:
            for process in reversed(running):
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(PATIENCE_SECONDS)


def until_started(command: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Waits until the command has said that it is there."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not STARTED.search(log.read_text()):
        assert process.poll() is None, f"{command}: ended with {process.returncode}:\n{log.read_text()}"
        assert time.monotonic() < deadline, f"{command}: not started:\n{log.read_text()}"
        time.sleep(0.1)


def check_lacking() -> None:
    """Every service that needs an extra says so, and `cadre up` names one command for all."""
    for verb in ("up", "gateway", "memory", "sandbox", "scripted-model"):
        done = subprocess.run(["cadre", verb], env=ENVIRONMENT, capture_output=True, text=True)
        assert done.returncode == 2, (verb, done)
        assert done.stderr.count("\n") == 1, done.stderr
        assert done.stderr.endswith(f"pip install 'cadre-agents[{verb}]'\n"), done.stderr


if __name__ == "__main__":
    if sys.argv[2:] == ["lacking"]:
        check_lacking()
    else:
        run_team(Path(sys.argv[1]).read_text())

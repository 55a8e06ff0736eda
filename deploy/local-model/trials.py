"""Gives a team of small agents real tasks and counts the right answers: what a small model makes of Cadre's prompts.

The model is that of CADRE_MODEL_URL, else one that serve.py serves here. `--forms all` compares the forms of calls.
Nothing is scripted: the answers are a language model's.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tasks import WORK, Work

from cadre.client import AsyncClient, ClientError

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "local-model"
PYTHON = HERE.parents[1] / "build" / "local-model-venv" / "bin" / "python"


class Row(NamedTuple):
    """What came of some trials; the last three are averages of a run."""

    model: str
    work: str
    form: str
    right: int
    trials: int
    tokens: float
    steps: float
    seconds: float

    def cells(self) -> list[str]:
        """The row as texts, in the columns of HEADINGS."""
        figures = [f"{self.tokens:.0f}", f"{self.steps:.1f}", f"{self.seconds:.1f}"]
        return [self.model, self.work, self.form, f"{self.right} of {self.trials}", *figures]


HEADINGS = ["model", "tasks", "form", "right", "input tokens a run", "steps", "seconds"]


@contextlib.contextmanager
def model() -> Iterator[str]:
    """The URL of the endpoint in use."""
    if url := os.environ.get("CADRE_MODEL_URL"):
        yield url
        return
    served = subprocess.Popen([str(PYTHON), str(HERE / "serve.py"), str(BUILD), "0"], stdout=subprocess.PIPE, text=True)
    try:
        assert served.stdout is not None
        url = next((line.strip() for line in served.stdout if line.startswith("http")), None)
        if url is None:
            raise SystemExit("the model's server did not start: it says why above")
        yield url
    finally:
        served.kill()
        served.wait()


def model_name() -> str:
    """What the model in use is called in a table."""
    if os.environ.get("CADRE_MODEL_URL"):
        return os.environ.get("CADRE_MODEL", "an endpoint")
    given = os.environ.get("MODEL")
    return Path(given).stem if given else f"Qwen2.5-Coder {os.environ.get('SIZE') or '0.5B'}"


@contextlib.contextmanager
def team(work: Work, form: str, url: str) -> Iterator[str]:
    """The gateway of the team at work in a folder of its own, its agents' calls or code written in this form."""
    with tempfile.TemporaryDirectory(prefix="cadre-local-") as folder:
        for file in (*HERE.glob("*.yaml"), HERE / "prices.py"):
            (Path(folder) / file.name).write_text(file.read_text().replace(*work.forms[form]))
        environment = {"CADRE_MODEL": "local", **os.environ, "CADRE_MODEL_URL": url}
        cadre = Path(sys.executable).parent / "cadre"
        command = [str(cadre), "up", "team.yaml", "--port", "0", "--data", "data"]
        with (Path(folder) / "up.log").open("w") as log:
            up = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        try:
            until = time.monotonic() + 600
            while not (state := Path(folder) / "data" / "up.json").exists() or "cadre: ready" not in _log(folder):
                if up.poll() is not None or time.monotonic() > until:
                    raise SystemExit(f"the team did not start:\n{_log(folder)}")
                time.sleep(0.5)
            yield json.loads(state.read_text())["gateway"]
        finally:
            up.terminate()
            up.wait()


def _log(folder: str) -> str:
    return (Path(folder) / "up.log").read_text()


async def trials(gateway: str, name: str, form: str, count: int) -> Row:
    """Runs the tasks one after the other; returns what came of them."""
    work = WORK[name]
    right = tokens = steps = 0
    begun = time.monotonic()
    async with AsyncClient(gateway) as cadre:
        for number in range(count):
            task, wanted = work.tasks[number % len(work.tasks)]
            run = await cadre.start(work.agent, task)
            try:
                answer = str(await run.result())
            except ClientError as error:
                answer = f"{type(error).__name__}: {error}"
            good = re.search(rf"\b{wanted}\b", answer) is not None
            usage = (await run.detail()).usage
            right, tokens, steps = right + good, tokens + usage.input_tokens, steps + usage.steps
            print(f"{'right' if good else 'WRONG':6}{task:70} {' '.join(answer.split())[:70]}", flush=True)
    seconds = time.monotonic() - begun
    return Row(model_name(), name, form, right, count, tokens / count, steps / count, seconds / count)


def keep(rows: list[Row], page: Path) -> None:
    """Writes the rows into the page's table, over what it says of the same model, tasks and form."""
    lines = page.read_text().splitlines()
    heading = lines.index(f"| {' | '.join(HEADINGS)} |")
    for row in rows:
        end = next((at for at in range(heading, len(lines)) if not lines[at].startswith("|")), len(lines))
        begins = f"| {' | '.join(row.cells()[:3])} |"
        known = next((at for at in range(heading, end) if lines[at].startswith(begins)), None)
        lines[end if known is None else known : end if known is None else known + 1] = [
            f"| {' | '.join(row.cells())} |"
        ]
    page.write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", default=",".join(WORK), help="which tasks, separated by commas")
    parser.add_argument("--forms", help="forms of calls, or of code, to compare, or all; else the shipped one")
    parser.add_argument("--trials", type=int, default=20, help="of each")
    parser.add_argument("--keep", type=Path, help="a page whose table gets the figures")
    options = parser.parse_args()
    rows: list[Row] = []
    with model() as url:
        for name in options.tasks.split(","):
            forms = list(WORK[name].forms)
            wanted = forms[:1] if options.forms is None else forms
            asked = set(forms if options.forms in (None, "all") else options.forms.split(","))
            for form in [form for form in wanted if form in asked]:
                print(f"--- {name}, {form}", flush=True)
                with team(WORK[name], form, url) as gateway:
                    rows.append(asyncio.run(trials(gateway, name, form, options.trials)))
                if options.keep is not None:
                    keep(rows[-1:], options.keep)
    table = [HEADINGS, *(row.cells() for row in rows)]
    widths = [max(len(cells[column]) for cells in table) for column in range(len(HEADINGS))]
    print()
    for cells in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main()

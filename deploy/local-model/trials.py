"""Gives the clerk twenty tasks and counts the right answers: what a small language model makes of Cadre's prompts.

The model is that of CADRE_MODEL_URL, else one that serve.py serves here. `--calls native,schema,text` compares the
forms of calls. Nothing is scripted: the answers are a language model's.
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

from prices import PLANTS

from cadre.client import Client, ClientError

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "local-model"
PYTHON = HERE.parents[1] / "build" / "local-model-venv" / "bin" / "python"

TASKS = [
    (question.format(plant=plant), str(PLANTS[plant][place]))
    for plant in PLANTS
    for question, place in (
        ("What does one {plant} cost?", 0),
        ("How many of {plant} are in stock?", 1),
        ("Tell me the price of one {plant}, in euros.", 0),
        ("How many plants of {plant} do we have?", 1),
    )
]
"""Each task, and the number that a right answer names."""


@contextlib.contextmanager
def model() -> Iterator[str]:
    """The URL of the endpoint in use."""
    if url := os.environ.get("CADRE_MODEL_URL"):
        yield url
        return
    served = subprocess.Popen(
        [str(PYTHON), str(HERE / "serve.py"), str(BUILD), "0"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert served.stdout is not None
        url = next((line.strip() for line in served.stdout if line.startswith("http")), None)
        if url is None:
            raise SystemExit("the model's server did not start: it says why above")
        yield url
    finally:
        served.kill()
        served.wait()


@contextlib.contextmanager
def team(calls: str, url: str) -> Iterator[Path]:
    """The team at work in a folder of its own, its agent's calls written so."""
    with tempfile.TemporaryDirectory(prefix="cadre-local-") as folder:
        for name in ("team.yaml", "clerk.yaml", "prices.py"):
            text = (HERE / name).read_text()
            (Path(folder) / name).write_text(text.replace("calls: schema", f"calls: {calls}"))
        environment = {"CADRE_MODEL": "local", **os.environ, "CADRE_MODEL_URL": url}
        cadre = Path(sys.executable).parent / "cadre"
        command = [str(cadre), "up", "team.yaml", "--port", "0", "--data", "data"]
        with (Path(folder) / "up.log").open("w") as log:
            up = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        try:
            until = time.monotonic() + 600
            while not (state := Path(folder) / "data" / "up.json").exists() or "ready" not in _log(folder):
                if up.poll() is not None or time.monotonic() > until:
                    raise SystemExit(f"the team did not start:\n{_log(folder)}")
                time.sleep(0.5)
            yield state
        finally:
            up.terminate()
            up.wait()


def _log(folder: str) -> str:
    return (Path(folder) / "up.log").read_text()


async def trials(gateway: str, count: int) -> dict[str, float]:
    """Runs the tasks one after the other; returns what came of them."""
    right = tokens = steps = 0
    begun = time.monotonic()
    async with Client(gateway) as cadre:
        for number in range(count):
            task, wanted = TASKS[number % len(TASKS)]
            run = await cadre.start("clerk", task)
            try:
                answer = str(await run.result())
            except ClientError as error:
                answer = f"{type(error).__name__}: {error}"
            good = re.search(rf"\b{wanted}\b", answer) is not None
            detail = await run.detail()
            right, tokens, steps = (
                right + good,
                tokens + detail.usage.input_tokens,
                steps + detail.usage.steps,
            )
            print(f"{'right' if good else 'WRONG':6}{task:45} {' '.join(answer.split())[:70]}", flush=True)
    return {
        "right": right,
        "of": count,
        "tokens": tokens / count,
        "steps": steps / count,
        "seconds": (time.monotonic() - begun) / count,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", default="schema", help="forms of calls to compare, separated by commas")
    parser.add_argument("--trials", type=int, default=len(TASKS))
    options = parser.parse_args()
    table = {}
    with model() as url:
        for calls in options.calls.split(","):
            print(f"--- calls: {calls}", flush=True)
            with team(calls, url) as state:
                gateway = json.loads(state.read_text())["gateway"]
                table[calls] = asyncio.run(trials(gateway, options.trials))
    print(f"\n{'calls':8}{'right':>9}{'input tokens':>15}{'steps':>8}{'seconds':>10}   (each per run)")
    for calls, row in table.items():
        right = f"{row['right']:.0f}/{row['of']:.0f}"
        print(f"{calls:8}{right:>9}{row['tokens']:>15.0f}{row['steps']:>8.1f}{row['seconds']:>10.1f}")


if __name__ == "__main__":
    main()

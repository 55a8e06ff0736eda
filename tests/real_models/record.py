"""Makes fixtures of recorded answers: `python record.py CASSETTE NAME "What it shows."`

Record an endpoint first: `cadre scripted-model --mode record --upstream URL --cassette FOLDER`, and have agents ask it.
A fixture keeps the raw answer with its stream chunks, without timings and without where the weights lie on a disk.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

ANSWERS = Path(__file__).parent / "answers"

_DROPPED = ("timings", "system_fingerprint", "id", "created")


def main(cassette: str, name: str, about: str) -> None:
    recorded = json.loads(Path(cassette).read_text())
    lines = recorded["body"].splitlines()
    fixture = {
        "about": about,
        "origin": f"recorded: {_model(recorded['body'])}, llama.cpp's server",
        "asked": recorded["request"]["messages"][-1]["content"],
        "body": "\n".join(_cleaned(line) for line in lines) + "\n",
    }
    (ANSWERS / f"{name}.json").write_text(json.dumps(fixture, indent=1, ensure_ascii=False) + "\n")


def _model(body: str) -> str:
    found = re.search(r'"model":"(?:[^"]*/)?([^"/]+)"', body)
    return found[1] if found is not None else "unknown"


def _cleaned(line: str) -> str:
    if not line.startswith("data: {"):
        return line
    chunk: dict[str, Any] = {key: value for key, value in json.loads(line[6:]).items() if key not in _DROPPED}
    chunk["model"] = Path(chunk.get("model", "")).name
    return f"data: {json.dumps(chunk, ensure_ascii=False, separators=(',', ':'))}"


if __name__ == "__main__":
    main(*sys.argv[1:])

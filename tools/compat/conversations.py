"""The requests of each system to the model: the requests as the recording endpoint heard them."""

import json
from pathlib import Path
from typing import Any

import httpx2

from compat.cases import PLAYED
from harness.patience import patience

Request = dict[str, Any]
"""`{model, messages, tools?, response_format?}`"""

Conversations = dict[tuple[str, str], list[Request]]
"""By model name (that is: system) and mark of the case."""


def conversations(endpoint: str, cassettes: Path) -> Conversations:
    """Every request in the order in which it was asked. `endpoint` is the recorder's address, without `/v1`."""
    answer = httpx2.get(f"{endpoint}/script/journal", params={"settled": 30}, timeout=patience())
    assert answer.status_code == 200, answer.text
    found: Conversations = {}
    for line in answer.json():
        verb, _, name = line["rule"].partition(" ")
        if line["status"] == 400:
            continue  # what the endpoint refuses, it does not record
        assert verb == "recorded", f"a request was not answered: {line}"
        request = json.loads((cassettes / name).read_text())["request"]
        found.setdefault((line["model"], _mark_of(request)), []).append(request)
    return found


def _mark_of(request: Request) -> str:
    asked = next(text_of(message) for message in request["messages"] if message["role"] == "user")
    marks = [mark for case in PLAYED for mark, _ in case.scripts]
    return next(mark for mark in marks if mark in asked)


def text_of(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)

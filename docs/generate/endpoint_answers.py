"""The page of endpoints: their answers that tests play to the client, and the profiles that Cadre knows."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from cadre.adapters import models

_ANSWERS = Path(__file__).parents[2] / "tests" / "endpoints" / "answers"
_PROFILES = Path(models.__file__).parent / "profiles.yaml"

_HEAD = """# Answers of endpoints

What tests play over HTTP to the client that agents use: the files in `tests/endpoints/answers`. A *reported* answer is
that of a public report, a *recorded* one came from the endpoint, and a *written* one follows a description of it.
[Models](models.md#endpoints) says what follows from an answer. This page is generated.

| endpoint | file | what the client makes of it | origin |
|---|---|---|---|
"""

_PROFILES_HEAD = """
## Known profiles

[Profiles](models.md#profiles) by host and by model name; the first match counts.

| for | patterns | profile |
|---|---|---|
"""

_FAILURES = {"unavailable": "tried again", "refused": "refused for good", "too_long": "context overflow"}


def page() -> str:
    """Return the whole page."""
    answers = [(file.stem, json.loads(file.read_text())) for file in _ANSWERS.glob("*.json")]
    answers.sort(key=lambda one: (one[1]["endpoint"].lower(), one[0]))
    rows = [
        f"| {answer['endpoint']} | `{name}` | {_outcome(answer.get('outcome', {}))} | {_origin(answer)} |"
        for name, answer in answers
    ]
    profiles = yaml.safe_load(_PROFILES.read_text())
    known = [
        f"| {kind} | {_code(one['match'])} | {_keys(one)} |"
        for kind, of in (("host", "endpoints"), ("model", "models"))
        for one in profiles[of]
    ]
    return _HEAD + "\n".join(rows) + "\n" + _PROFILES_HEAD + "\n".join(known) + "\n"


def _outcome(outcome: dict[str, Any]) -> str:
    if failure := outcome.get("failure"):
        return _FAILURES[failure]
    if outcome.get("refused_calls"):
        return "reported to the model"
    return "calls made" if outcome.get("calls") else "text"


def _origin(answer: dict[str, Any]) -> str:
    origin, source = answer["origin"], answer.get("source", "")
    if found := re.fullmatch(r"([\w./-]+)@(\w+):(.+)", source):
        return f"{origin}: [{found[1]}](https://github.com/{found[1]}/blob/{found[2]}/{found[3]})"
    if found := re.fullmatch(r"([\w./-]+)#(\d+)", source):
        return f"{origin}: [{source}](https://github.com/{found[1]}/issues/{found[2]})"
    return f"{origin}: {source}" if source else origin


def _code(patterns: list[str]) -> str:
    return ", ".join(f"`{one}`" for one in patterns)


def _keys(profile: dict[str, Any]) -> str:
    return ", ".join(f"`{key}: {_value(value)}`" for key, value in profile.items() if key != "match")


def _value(value: str | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else value

"""The memory of a run as text: its task, plans and steps, each call with what came of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from textwrap import indent
from typing import Any

from cadre.cli.terminal.answer import as_text
from cadre.cli.terminal.run_tree import error_text


def told(memory: list[dict[str, Any]]) -> Iterator[str]:
    """Lines and blocks of the steps that the gateway tells of with `full=true`."""
    for step in memory:
        match step.get("type"):
            case "task":
                yield from _block("task", step.get("task", ""))
                yield from (f"  image {image[:80]}" for image in step.get("images") or [])
            case "recalled":
                yield "remembered from earlier work"
                for kept in step.get("memories") or []:
                    yield from _text(kept.get("text"), "  ")
            case "planning":
                yield from _block("plan", step.get("plan", ""))
            case "action":
                yield from _action(step)
            case "answer":
                yield from _block("answer", step.get("output"))
            case kind:
                yield from _block(str(kind), step)


def _action(step: dict[str, Any]) -> Iterator[str]:
    yield from _block(f"step {step.get('number')}", step.get("content") or "")
    for call in step.get("calls") or []:
        yield f"  {call.get('name')} {json.dumps(call.get('arguments') or {}, ensure_ascii=False)}"
        yield from _text(error_text(call.get("error")) or call.get("observation") or "(open)", "    ")
    yield from _text(step.get("observation"), "  ")
    if step.get("error"):
        yield from _text(f"failed: {error_text(step['error'])}", "  ")


def _block(title: str, content: Any) -> Iterator[str]:
    yield title
    yield from _text(content, "  ")


def _text(content: Any, margin: str) -> Iterator[str]:
    if content not in (None, ""):
        yield indent(as_text(content).rstrip("\n"), margin)

"""A run played back for a reader: step by step what was planned, thought, run, called, observed and answered."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from textwrap import indent
from typing import Any

from cadre.cli.runs import state, took
from cadre.cli.terminal import labels
from cadre.cli.terminal.answer import as_text
from cadre.cli.terminal.run_tree import error_text
from cadre.cli.terminal.table import number, seconds

Run = dict[str, Any]
Step = dict[str, Any]

Fetch = Callable[[str], Run]
"""A run with its memory, by its id."""

_MARGIN = "  "


def played(run: Run, fetch: Fetch | None = None) -> Iterator[str]:
    """Blocks of text; with `fetch`, each run below it is played where its manager called it."""
    yield f"{run['agent']}  {run['id']}  {state(run)}, {took(run)}"
    below = {child["id"] for child in run.get("children") or []}
    for step in run.get("memory") or []:
        match step.get("type"):
            case "task":
                yield from _block("task", step.get("task"))
                yield from (f"{_MARGIN}image {image[:80]}" for image in step.get("images") or [])
            case "recalled":
                yield "remembered from earlier work"
                for kept in step.get("memories") or []:
                    yield from _text(kept.get("text"), 1)
            case "planning":
                yield from _block(f"plan{_facts(step)}", step.get("plan"))
            case "action":
                yield from _action(step, fetch, below)
            case "answer":
                yield from _block("answer", step.get("output"))
            case kind:
                yield from _block(str(kind), {key: value for key, value in step.items() if key != "type"})
    if run.get("error"):
        yield from _block("ended", error_text(run["error"]))
        if run.get("output") is not None and not _has_answer(run):
            yield from _block("found until then", run["output"])
    yield _usage(run)


def _action(step: Step, fetch: Fetch | None, below: set[str]) -> Iterator[str]:
    yield f"step {step.get('number')}{_facts(step)}"
    for title, text in labels.model_output(step):
        yield from _block(title, text, 1)
    for call in step.get("calls") or []:
        arguments = json.dumps(call.get("arguments") or {}, ensure_ascii=False)
        yield f"{_MARGIN}{'check' if call.get('check') else 'call'} {call.get('name')} {arguments}"
        if fetch is not None and call.get("id") in below:
            yield indent("\n".join(played(fetch(call["id"]), fetch)), 2 * _MARGIN)
        yield from _text(error_text(call.get("error")) or call.get("observation") or "(open)", 2)
    yield from _block("observed", step.get("observation"), 1)
    if step.get("error"):
        yield from _block("failed", error_text(step["error"]), 1)


def _facts(step: Step) -> str:
    """How long it took and what its model call used, as far as the journal tells."""
    told = []
    if step.get("ended_at") and step.get("started_at"):
        told.append(seconds(step["ended_at"] - step["started_at"]))
    usage = step.get("usage") or {}
    if count := usage.get("input_tokens", 0) + usage.get("output_tokens", 0):
        told.append(f"{number(count)} tokens")
    return f"  ({', '.join(told)})" if told else ""


def _usage(run: Run) -> str:
    usage = run.get("usage") or {}
    cost = f", cost {usage['cost']:.4g}" if usage.get("cost") else ""
    return (
        f"usage  {usage.get('input_tokens', 0)} tokens in, {usage.get('output_tokens', 0)} out,"
        f" {usage.get('model_calls', 0)} model calls, {usage.get('steps', 0)} steps{cost}"
        + (", runs below it included" if run.get("children") else "")
    )


def _has_answer(run: Run) -> bool:
    return any(step.get("type") == "answer" for step in run.get("memory") or [])


def _block(title: str, content: Any, depth: int = 0) -> Iterator[str]:
    if content not in (None, ""):
        yield depth * _MARGIN + title
        yield from _text(content, depth + 1)


def _text(content: Any, depth: int) -> Iterator[str]:
    if content not in (None, ""):
        yield indent(as_text(content).strip("\n"), depth * _MARGIN)

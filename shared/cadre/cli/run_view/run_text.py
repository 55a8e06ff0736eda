"""A run as text, from the gateway's account of it: a summary, a line per run of its tree, its plan and its queue,
its steps, what its model was sent, a playback."""

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from textwrap import indent
from typing import Any, NamedTuple

import msgspec

from cadre.cli.terminal.output import as_text
from cadre.journal.parts import KindStep
from cadre.journal.unions import close
from cadre.views.words import brief, error_text, number, seconds

Account = dict[str, Any]
Step = dict[str, Any]

Fetch = Callable[[str], Account]
"""Returns the account of a run with its steps, by the run's id."""

_QUEUED_SECONDS = 1.0
"""The shortest time in the queue that is shown for a run that has begun."""

_MARGIN = "  "


def state(run: Account) -> str:
    """Return the state in words: with what the run waits for, and how many calls of its tree wait for a person."""
    text = str(run["state"])
    awaited = run.get("waiting_for")
    if awaited and awaited != "approval":
        text += f" for {awaited}" if text == "waiting" else f", no service serves {awaited}"
    held = run.get("approvals") or 0
    return f"{text}, {held} to approve" if held else text


def tokens(run: Account) -> str:
    """Return the tokens in and out of the run and all runs below it, in few characters."""
    return number(_token_count(run))


def took(run: Account) -> str:
    """Return how long the run took, or has taken until now."""
    started = run.get("started_at")
    return seconds((run.get("ended_at") or time.time()) - started) if started else "-"


def summary(run: Account, waiting: list[dict[str, Any]], edited: Iterable[str] = (), *, full: bool) -> Iterator[str]:
    """Return lines and blocks of what is known of a run, `full` with its steps; `waiting` are its calls that are held,
    `edited` the lines of its plan or queue."""
    yield f"run      {run['id']}"
    told = {"revision": "revision", "tools' schemas": "schemas"}
    digests = [f", {what} {run[key]}" for what, key in told.items() if run.get(key)]
    yield f"agent    {run['agent']}{''.join(digests)}"
    yield f"state    {_facts(run)}"
    if run["state"] == "queued":
        asked = run.get("asked_at") or run["started_at"]
        yield f"queued   {_local_time(asked)}: no replica of {run['agent']} has begun it"
    elif run.get("started_at"):
        was_queued = run["started_at"] - run.get("asked_at", run["started_at"])
        after = f", {seconds(was_queued)} after it was asked for" if was_queued >= _QUEUED_SECONDS else ""
        yield f"started  {_local_time(run['started_at'])}{after}"
    if run.get("deadline_at"):
        left = run["deadline_at"] - time.time()
        is_ahead = left > 0 and not run.get("ended_at")
        yield f"deadline {_local_time(run['deadline_at'])}" + (f", in {seconds(left)}" if is_ahead else "")
    if run.get("budget"):
        yield f"budget   {', '.join(f'{value:g} {key}' for key, value in run['budget'].items())}"
    if run.get("forked_from"):
        yield f"fork of  {run['forked_from']['run']} at step {run['forked_from']['at']}"
    if run.get("parent"):
        yield f"parent   {run['parent']}"
    if run.get("session"):
        yield f"session  {run['session']}"
    if run.get("trace"):
        yield f"trace    {run['trace']}"
    yield f"task     {brief(run.get('task') or '', 200)}"
    yield from edited
    for call in waiting:
        yield f"waits    {brief(call['headline'], 200)}  ({brief(call['reason'], 100)})"
        yield f"         cadre approve {call['call']}"
    if run.get("error"):
        yield f"error    {brief(error_text(run['error']), 2000)}"
    if run.get("children"):
        yield "children"
        for child in _children(run):
            yield from branches(child, _MARGIN)
    if full:
        yield "memory"
        steps = run.get("memory") or []
        if steps and steps[-1].get("type") == "answer":  # it follows below
            steps = steps[:-1]
        yield from (indent(text, _MARGIN) for text in steps_text(steps))
    if run.get("output") is not None:
        yield "answer"
        yield as_text(run["output"])


def steps_text(steps: list[Step]) -> Iterator[str]:
    """Return blocks of the steps: what the model wrote, each call with what came of it, what was observed."""
    for step in steps:
        yield from _Steps().blocks(step)


def branches(run: Account, margin: str = "") -> Iterator[str]:
    """Yield a line for the run and one for each run below it."""
    yield f"{margin}{run['id']}  {run['agent']}  {_facts(run)}  {brief(run.get('task') or '', 80)}"
    for child in _children(run):
        yield from branches(child, margin + _MARGIN)


def playback(run: Account, fetch: Fetch | None = None) -> Iterator[str]:
    """Yield blocks that describe the run step by step; with `fetch`, each run below it where its manager called it."""
    children = {child["id"] for child in run.get("children") or []}

    def below(call: str) -> str | None:
        return "\n".join(playback(fetch(call), fetch)) if fetch is not None and call in children else None

    yield f"{run['agent']}  {run['id']}  {state(run)}, {took(run)}"
    steps, text = run.get("memory") or [], _Steps(played=True, below=below)
    for step in steps:
        yield from text.blocks(step)
    if run.get("error"):
        yield from text.block("ended", error_text(run["error"]))
        if run.get("output") is not None and not any(step.get("type") == "answer" for step in steps):
            yield from text.block("found until then", run["output"])
    yield _usage(run)


class _Steps:
    """The steps of a run as blocks. `played` shows more of each, and leaves out empty parts."""

    def __init__(self, *, played: bool = False, below: Callable[[str], str | None] = lambda call: None) -> None:
        self._played = played
        self._below = below
        """Returns the text of the run that a call started."""

    def blocks(self, step: Step) -> Iterator[str]:
        """Yield the text of one step, block by block."""
        match step.get("type"):
            case "task":
                yield from self.block("task", step.get("task"))
                yield from (f"{_MARGIN}image {image[:80]}" for image in step.get("images") or [])
            case "recalled":
                yield "remembered from earlier work"
                for memory in step.get("memories") or []:
                    yield from self.block("", memory.get("text"))
            case "message":
                sender = step.get("sender")
                yield from self.block(f"message from {sender}" if sender else "message", step.get("text"))
            case "planning":
                yield from self.block(f"plan{self._effort(step)}", step.get("plan"))
            case "action":
                yield from self._action(step)
            case "answer":
                yield from self.block("answer", step.get("output"))
            case kind:
                hidden = ("type",) if self._played else ()
                yield from self.block(str(kind), {key: value for key, value in step.items() if key not in hidden})

    def block(self, title: str, content: Any, depth: int = 0) -> Iterator[str]:
        """Yield the title, if any, and below it the content, indented."""
        is_empty = content in (None, "")
        if title and not (is_empty and self._played):
            yield depth * _MARGIN + title
        if not is_empty:
            text = as_text(content)
            text = text.strip("\n") if self._played else text.rstrip("\n")
            yield indent(text, (depth + 1) * _MARGIN)

    def _action(self, step: Step) -> Iterator[str]:
        yield f"step {step.get('number')}{self._effort(step)}"
        yield from (_MARGIN + line for line in item_lines(step.get("items") or []))
        for title, text in model_output(step) if self._played else [("", step.get("content"))]:
            yield from self.block(title, text, 1 if title else 0)
        for line in step_lines(step):
            yield _MARGIN + line
        for call in step.get("calls") or []:
            kind = ("check " if call.get("check") else "call ") if self._played else ""
            yield f"{_MARGIN}{kind}{call.get('name')} {json.dumps(call.get('arguments') or {}, ensure_ascii=False)}"
            if (below := self._below(str(call.get("id")))) is not None:
                yield indent(below, 2 * _MARGIN)
            yield from self.block("", error_text(call.get("error")) or call.get("observation") or "(open)", 1)
        if plan := (step.get("own") or {}).get("items"):
            yield indent("\n".join(map(plan_line, plan_of(plan))), _MARGIN)
        error = error_text(step.get("error"))
        if self._played:
            yield from self.block("observed", observed(step), 1)
            yield from self.block("failed", error, 1)
        else:
            yield from self.block("", observed(step))
            yield from self.block("", error and f"failed: {error}")

    def _effort(self, step: Step) -> str:
        """Return the duration of the step and the usage of its model call, as far as the journal has them."""
        facts = []
        if self._played and step.get("ended_at") and step.get("started_at"):
            facts.append(seconds(step["ended_at"] - step["started_at"]))
        if self._played and (count := _token_count(step)):
            facts.append(f"{number(count)} tokens")
        return f"  ({', '.join(facts)})" if facts else ""


def _usage(run: Account) -> str:
    usage = run.get("usage") or {}
    cost = f", cost {usage['cost']:.4g}" if usage.get("cost") else ""
    return (
        f"usage  {usage.get('input_tokens', 0)} tokens in, {usage.get('output_tokens', 0)} out,"
        f" {usage.get('model_calls', 0)} model calls, {usage.get('steps', 0)} steps{cost}"
        + (", runs below it included" if run.get("children") else "")
    )


def _facts(run: Account) -> str:
    cost = (run.get("usage") or {}).get("cost") or 0
    priced = f", cost {cost:.4g}" if cost else ""
    return f"{state(run)}, step {run.get('step') or 0}, {tokens(run)} tokens{priced}, {took(run)}"


def _token_count(used: dict[str, Any]) -> int:
    usage = used.get("usage") or {}
    return int(usage.get("input_tokens", 0) + usage.get("output_tokens", 0))


def _children(run: Account) -> list[Account]:
    """Children by step and place in it, which their ids end in."""
    return sorted(run.get("children") or [], key=lambda child: [int(n) for n in child["id"].split("_")[-2:]])


def _local_time(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


MAX_CHARS = 300
"""Of one line."""

_UNSAID = ("id", "type", "status", "encrypted_content")


def item_lines(items: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a line for each thing that there is to see."""
    for item in items:
        kind = str(item.get("type"))
        if kind == "reasoning":
            parts = [*(item.get("summary") or []), *(item.get("content") or [])]
            if text := " ".join(str(part.get("text", "")) for part in parts):
                yield f"reasoning: {brief(text, MAX_CHARS)}"
        elif kind == "message":
            parts = [item, *(item.get("content") or [])]
            yield from (_citation(note) for part in parts for note in part.get("annotations") or [])
        elif kind != "function_call":
            said = {key: value for key, value in item.items() if key not in _UNSAID and value is not None}
            status = item.get("status", "completed")
            text = brief(json.dumps(said, ensure_ascii=False), MAX_CHARS)
            yield f"{kind} {text}" + ("" if status == "completed" else f" ({status})")


def _citation(note: dict[str, Any]) -> str:
    about = note.get("url_citation") or note
    names = [str(about[key]) for key in ("title", "filename", "url", "file_id") if about.get(key)]
    return brief(f"cites {' '.join(names) or note.get('type')}", MAX_CHARS)


_TAG = re.compile(r"(?:\s*[<`\[][^\s]*)+\s*\Z")
"""The text before a block of code: a tag, or the beginning of a fence."""


def step_lines(step: dict[str, Any]) -> Sequence[str]:
    """Return the lines for the part of an action step that belongs to its kind; no lines for a kind that is not
    installed."""
    own = step.get("own") or {}
    kind = close().steps.get(str(own.get("kind")))
    if kind is None:
        return ()
    read: KindStep = msgspec.convert(own, kind)
    return read.lines()


def model_output(step: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what the model wrote in an action step, as titles and texts: its thought, and its code if it wrote any.

    Where thought and code cannot be distinguished, the whole output stands for the thought.
    """
    content, code = str(step.get("content") or ""), str((step.get("own") or {}).get("code") or "")
    return [("thought", _thought(content, code) if code else content), ("code", code)]


def observed(step: dict[str, Any]) -> str | None:
    """Return the result of an action step besides the outcomes of its calls."""
    found: str | None = (step.get("own") or {}).get("observation")
    return found


def _thought(content: str, code: str) -> str:
    try:
        structured = json.loads(content)
    except ValueError:
        structured = None
    if isinstance(structured, dict) and isinstance(thought := structured.get("thought"), str):
        return thought
    begin = content.find(code)
    if begin < 0:
        return content
    return _TAG.sub("", content[:begin]).strip().removeprefix("Thought:").strip()


_LONGEST = 100

PLAN_SIGNS = {
    "pending": ("☐", "bright_black"),
    "running": ("…", "yellow"),
    "waiting": ("◌", "magenta"),
    "done": ("☑", "green"),
    "failed": ("✗", "red"),
    "skipped": ("–", "bright_black"),
    "replaced": ("–", "bright_black"),
}
"""Sign and style of a step by its state."""


class PlanLine(NamedTuple):
    """One step of a plan."""

    step: int
    action: str
    text: str
    needs: tuple[int, ...]
    state: str
    outcome: str = ""


def plan_line(one: PlanLine) -> str:
    """Return the step on a line."""
    needs = f" (needs {', '.join(map(str, one.needs))})" if one.needs else ""
    state = "" if one.state in ("pending", "done") else f" [{one.state}]"
    outcome = f" → {one.outcome}" if one.outcome else ""
    return f"{PLAN_SIGNS[one.state][0]} {one.step} {one.action} {one.text}{needs}{state}{outcome}".replace("  ", " ")


def shown_plan(state: dict[str, Any]) -> Iterator[str]:
    """Return the lines of the plan as `GET /v1/runs/{id}/plan` has it."""
    yield f"plan     {state['state']}"
    for step in state["steps"]:
        yield f"  {plan_line(_line(step, step['state'], step.get('result'), step.get('error')))}"


def plan_of(items: Iterable[dict[str, Any]]) -> list[PlanLine]:
    """Return the plan as a step of a run's memory keeps it."""
    return [
        _line(
            one["plan"],
            one.get("state", "pending"),
            one.get("result"),
            (one.get("error") or {}).get("message"),
        )
        for one in items
    ]


def _line(step: dict[str, Any], state: str, result: Any = None, error: str | None = None) -> PlanLine:
    text = step.get("task") or (brief(step["args"], _LONGEST) if step.get("args") else "")
    outcome = brief(error if error else result, _LONGEST) if error or result is not None else ""
    needs = tuple(step.get("needs") or ())
    return PlanLine(step["step"], step.get("action", "execute"), brief(text, _LONGEST), needs, state, outcome)


def shown_queue(state: dict[str, Any]) -> Iterator[str]:
    """Return the lines of the queue as `GET /v1/runs/{id}/queue` has it; what is not begun is counted from 1."""
    for done in state["done"]:
        yield f"  {'failed' if done.get('failed') else 'done':6} {done['task']}"
    if state["begun"]:
        yield f"  begun  {state['begun']}"
    for place, task in enumerate(state["pending"], start=1):
        yield f"  {place:<6} {task}"


_SHOWN_APART = ("messages", "input", "tools")


def prompt_lines(request: dict[str, Any]) -> Iterator[str]:
    """Return lines and blocks of the answer to GET /v1/runs/ID/steps/N/request."""
    body = request["body"]
    yield f"request  step {request['step']}, {request['purpose']}, try {request['attempt']}"
    yield "calls    " + ", ".join(f"{call['purpose']} {call['attempt']}" for call in request["calls"])
    for name, value in body.items():
        if name not in _SHOWN_APART:
            yield f"{name:8} {as_text(value)}"
    tools = [tool.get("function", tool) for tool in body.get("tools", [])]
    if tools:
        yield "tools    " + ", ".join(_signature(tool) for tool in tools)
    for message in body.get("messages", body.get("input", [])):
        yield f"\n{message.get('role') or message.get('type')}"
        yield indent("\n".join(_parts(message)), "  ")


def _signature(tool: dict[str, Any]) -> str:
    names = ", ".join(tool.get("parameters", {}).get("properties", {}))
    return f"{tool.get('name', tool.get('type'))}({names})"


def _parts(message: dict[str, Any]) -> Iterator[str]:
    """Yield the text of a message, then its other parts."""
    content = message.get("content")
    if isinstance(content, list):
        yield from (part["text"] if "text" in part else as_text(part) for part in content)
    elif content:
        yield str(content)
    rest = {key: value for key, value in message.items() if key not in ("role", "content", "type") and value}
    if rest:
        yield as_text(rest)

"""Requests reduced to turns of facts: what a model learns from them, no matter what the words around it.

A turn is a role and its facts; a fact is a tuple that begins with its kind:

    ("functions", {name: parameters})    what may be called, by the system prompt or the list of functions
    ("task", text) ("share", text)       a task; one that a manager hands on
    ("variables", json)                  the task's additional arguments
    ("image",)                           an image
    ("said", text) ("called", name, json of the arguments) ("plan", text) ("proceed",)
    ("ran", code)                        a block of code, where its author's words are left out
    ("printed", text) ("value", text)    of a block of code
    ("observed", text)                   what the calls of a step returned, one after the other
    ("error", kind, {detail: text})      see the dialects
    ("summary", openings, mark)          of a member's work: what its messages are, and the case they speak of
    ("survey", mark, functions) ("so far", mark) ("new_plan", functions) ("record",) ("answer_now", mark)
                                         prompts: the case they speak of, the functions they list
    ("unknown", text)                    anything else; it equals nothing on the other side
"""

import ast
import json
import re
from itertools import pairwise
from typing import Any

from compat.conversations import Request, text_of
from compat.dialect import Dialect

Fact = tuple[Any, ...]
Turn = tuple[str, tuple[Fact, ...]]

_MARK = re.compile(r"\[[\w-]+(?:: (?:member|other))?\]")
_IN_CODE = re.compile(r"^def (\w+)\((.*?)\)", re.MULTILINE)
_IN_LIST = re.compile(r"^- (\w+): .*\n +Takes inputs: (.*)", re.MULTILINE)
_OF_WORK = re.compile("New task:|Calling tools:|Observation:|Error:")
_ROLES = {"tool": "user"}
"""smolagents' conversion of roles."""


def turns_of(request: Request, dialect: Dialect) -> list[Turn]:
    """The request as the model sees it; neighbours of one role are one turn, as smolagents sends them."""
    turns: list[tuple[str, list[Fact]]] = []
    for message in request["messages"]:
        role = _ROLES.get(message["role"], message["role"])
        facts = _facts_of(message, request, dialect)
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(facts)
        else:
            turns.append((role, facts))
    return [(role, tuple(_observed_together(facts))) for role, facts in turns]


def _facts_of(message: dict[str, Any], request: Request, dialect: Dialect) -> list[Fact]:
    text = text_of(message)
    if told := re.search(dialect.summary, text, re.DOTALL):
        without = {**message, "content": text[: told.start()] + text[told.end() :]}
        return [*_facts_of(without, request, dialect), ("summary", _OF_WORK.findall(told[1]), _mark(told[1]))]
    match message["role"]:
        case "system":
            return [_system(text, request, dialect)]
        case "assistant":
            native = [_called(call["function"]) for call in message.get("tool_calls") or []]
            return [*_sections(text, dialect.of_assistant, dialect), *native]
        case "tool":
            return _sections(f"Observation:\n{text}", dialect.of_user, dialect)
    content = message["content"]
    images = [part for part in content if part["type"] == "image_url"] if isinstance(content, list) else []
    return [*_sections(text, dialect.of_user, dialect), *([("image",)] * len(images))]


def _system(text: str, request: Request, dialect: Dialect) -> Fact:
    if "tools" in request:
        offered = {one["function"]["name"]: one["function"]["parameters"] for one in request["tools"]}
        return ("functions", {name: sorted(shape["properties"]) for name, shape in offered.items()})
    if re.search(dialect.final_system, text):
        return ("record",)
    if re.search(dialect.update_system, text):
        return ("so far", _mark(text))
    return ("functions", _functions_in(text))


def _functions_in(text: str) -> dict[str, list[str]]:
    """Names and parameters of the functions in a prompt; `final_answer` is explained by either in its way."""
    in_code = {name: re.findall(r"(\w+):", given) for name, given in _IN_CODE.findall(text)}
    in_list = {name: list(_data(given)) for name, given in _IN_LIST.findall(text)}
    found = {**in_code, **in_list}
    return {name: sorted(given) for name, given in found.items() if name != "final_answer"}


def _sections(text: str, openings: dict[str, str], dialect: Dialect) -> list[Fact]:
    """The facts of a text: each section begins where one of the openings matches at the start of a line."""
    pattern = re.compile("|".join(f"(?P<{kind}>^{opening})" for kind, opening in openings.items()), re.MULTILINE)
    found = list(pattern.finditer(text))
    places = [match.start() for match in found] + [len(text)]
    before = text[: places[0]]
    facts = _section(dialect.unopened(openings), before, dialect) if before.strip() else []
    for match, (_, end) in zip(found, pairwise(places), strict=True):
        assert match.lastgroup is not None
        facts += _section(match.lastgroup, text[match.end() : end].strip("\n"), dialect)
    return facts


def _section(kind: str, text: str, dialect: Dialect) -> list[Fact]:
    match kind:
        case "task":
            return _task(text, dialect)
        case "said":
            return [("said", re.sub(r"\s*</code>\s*$", "", text.strip()))]
        case "calls":
            return [_called(call) for call in dialect.calls(text)]
        case "ran":
            return [("ran", text.removeprefix("```python\n").removesuffix("\n```"))]
        case "first_plan" | "later_plan":
            return [("plan", text.removesuffix("```").rpartition("```\n")[2].strip())]
        case "proceed":
            return [("proceed",)]
        case "observation":
            return _observation(text, dialect)
        case "error":
            return [_error(re.sub(dialect.after_error, "", text, flags=re.DOTALL).strip("\n"), dialect)]
        case "survey":
            return [(kind, _mark(text), _functions_in(text))]
        case "new_plan":
            return [(kind, _functions_in(text))]
        case "answer_now":
            return [(kind, _mark(text))]
    return [("unknown", text)]


def _task(text: str, dialect: Dialect) -> list[Fact]:
    # Cadre has a member's arguments between the lines that its task stands between, smolagents behind all.
    given = text.partition(dialect.variables)[2].partition("\n---\n")[0]
    variables = [("variables", _sorted(_data(given.strip().removesuffix("."))))] if given else []
    share = re.search(dialect.share, text, re.DOTALL)
    asked = (share[1] if share else text).partition(dialect.variables)[0].strip()
    return [("share" if share else "task", asked), *variables]


def _observation(text: str, dialect: Dialect) -> list[Fact]:
    if not text.strip():
        return []
    text = re.sub(dialect.report, r"Report of \1:\n", text, flags=re.MULTILINE)
    block = re.fullmatch(
        r"(?:Execution logs:\n(.*?))?\n*(?:^Last output from code snippet:\n(.*))?",
        text,
        re.DOTALL | re.MULTILINE,
    )
    if block is None or block[1] is None is block[2]:
        return [("observed", _text_or_data(re.sub(dialect.named, "", text)))]
    printed, value = (block[1] or "").strip("\n"), block[2]
    facts: list[Fact] = [("printed", printed)] if printed else []
    return facts if value is None else [*facts, ("value", value)]


def _observed_together(facts: list[Fact]) -> list[Fact]:
    """The results of a step's calls as one fact, however many messages bring them."""
    joined: list[Fact] = []
    for fact in facts:
        if fact[0] == "observed" and joined and joined[-1][0] == "observed":
            joined[-1] = ("observed", f"{joined[-1][1]}\n{fact[1]}")
        else:
            joined.append(fact)
    return joined


def _error(text: str, dialect: Dialect) -> Fact:
    for kind, pattern in dialect.errors:
        if found := re.fullmatch(pattern, text, re.DOTALL):
            details = found.groupdict()
            if "arguments" in details:
                details["arguments"] = _sorted(_data(details["arguments"]))
            return ("error", kind, details)
    return ("error", "unknown", text)


def _called(function: dict[str, Any]) -> Fact:
    arguments = function["arguments"]
    if function["name"] == "python_interpreter":
        return ("ran", arguments)
    return (
        "called",
        function["name"],
        _sorted(_data(arguments) if isinstance(arguments, str) else arguments),
    )


def _mark(text: str) -> str:
    found = _MARK.search(text)
    return found[0] if found else ""


def _text_or_data(text: str) -> str:
    """Data are shown as JSON by the one, as Python writes them by the other."""
    try:
        return _sorted(_data(text)) if text[:1] in "{[" else text
    except (ValueError, SyntaxError):
        return text


def _data(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return ast.literal_eval(text)


def _sorted(data: Any) -> str:
    return json.dumps(data, sort_keys=True)

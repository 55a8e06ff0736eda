"""Scripts in YAML, read and checked, and the answers that their rules give to requests.

Where no rule matches, the automatic reply calls every tool once and then answers with the results.
"""

import asyncio
import functools
import json
import re
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from pathlib import Path
from typing import Any

import jinja2
import msgspec
from jinja2.sandbox import ImmutableSandboxedEnvironment

from cadre.errors import SettingError
from cadre.spec.yaml_file import read_yaml
from cadre.structs import misfit_of
from cadre.tools.example_values import example
from cadre_scripted_model import NOT_AN_AI
from cadre_scripted_model.replies import (
    DONE,
    Completion,
    ConnectionCut,
    PacedResponse,
    chunk,
    complete,
    completion_body,
    deltas,
    error_body,
    usage_chunk,
)
from cadre_scripted_model.request import CallReply, ErrorReply, Reply, RequestView, as_text
from cadre_scripted_model.request_log import LogLine
from cadre_scripted_model.responses import ResponseEvents, response_body


class Match(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A request fits when all that is given holds. Texts are regular expressions, found anywhere, in any case."""

    model: str | None = None
    user: str | None = None
    first: str | None = None
    system: str | None = None
    last: str | None = None
    tool: str | None = None
    turn: int | None = None
    has_tool: bool | None = None
    tools: list[str] = []
    """All of these are on offer."""
    times: int | None = None
    """The rule answers at most so many requests."""

    def patterns(self) -> dict[str, str]:
        """Return the regular expressions that are given, by field."""
        found = {key: getattr(self, key) for key in ("model", "user", "first", "system", "last", "tool")}
        return {key: pattern for key, pattern in found.items() if pattern is not None}


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A rule: the requests that match, and their reply."""

    name: str = ""
    match: Match = Match()
    reply: Reply | list[Reply]
    """One reply, or a list: the nth request gets the nth, and the last one repeats."""

    def replies(self) -> list[Reply]:
        """Return the replies in order, also when there is only one."""
        return self.reply if isinstance(self.reply, list) else [self.reply]


class Script:
    """Rules in order, and how often each has answered since the process started or was reset."""

    def __init__(self, rules: list[Rule], context: int | None = None) -> None:
        self.rules = rules
        self.context = context
        """Tokens that a request may take up; None: as many as it likes."""
        self._hits = [0] * len(rules)

    def choose(self, view: RequestView) -> tuple[str, Reply] | None:
        """Return the name and the reply, not yet rendered, of the first rule that matches, and counts it."""
        for index, rule in enumerate(self.rules):
            if matches(rule.match, view, self._hits[index]):
                replies = rule.replies()
                reply = replies[min(self._hits[index], len(replies) - 1)]
                self._hits[index] += 1
                return rule.name, reply
        return None

    def reset(self) -> None:
        """Reset the counts of answered requests."""
        self._hits = [0] * len(self.rules)


def matches(match: Match, view: RequestView, hits: int) -> bool:
    """Return whether a rule that has answered `hits` requests answers this one."""
    return (
        (match.times is None or hits < match.times)
        and (match.turn is None or match.turn == view.turn)
        and (match.has_tool is None or match.has_tool == view.has_tool)
        and set(match.tools) <= set(view.tools)
        and all(
            re.search(pattern, getattr(view, key), re.DOTALL | re.IGNORECASE)
            for key, pattern in match.patterns().items()
        )
    )


_KEYS = ("rules", "context")


def read_script(path: Path) -> Script:
    """Return the script in a file. Raises SettingError naming the file, the rule and the key."""
    document = read_yaml(path, SettingError)
    if not isinstance(document, dict) or not isinstance(document.get("rules"), list):
        raise SettingError(f"{path}: a script is a mapping with a list under the key 'rules'")
    if others := sorted(str(key) for key in document if key not in _KEYS):
        raise SettingError(f"{path}: unknown key {others[0]!r}; a script has the keys {' and '.join(_KEYS)}")
    context = document.get("context")
    if context is not None and (type(context) is not int or context < 1):
        raise SettingError(f"{path}: context is {context!r}: give a number of tokens from 1, or leave it out")
    rules = [_read_rule(path, number, data) for number, data in enumerate(document["rules"], 1)]
    return Script(rules, context)


def _read_rule(path: Path, number: int, data: object) -> Rule:
    name = data.get("name") if isinstance(data, dict) else None
    where = f"{path}: rule {number}" + (f" ({name})" if name else "")
    try:
        rule = msgspec.convert(data, Rule)
    except msgspec.ValidationError as error:
        raise SettingError(f"{where}: {_explain(error)}") from error
    for key, pattern in rule.match.patterns().items():
        try:
            re.compile(pattern)
        except re.error as error:
            raise SettingError(f"{where}: match.{key} is no regular expression: {error}") from error
    if not rule.replies():
        raise SettingError(f"{where}: reply is an empty list: give at least one reply")
    for reply in rule.replies():
        _check_reply(where, reply)
    return msgspec.structs.replace(rule, name=rule.name or f"rule {number}")


_TOKENS = (("cached_tokens", 0), ("reasoning_tokens", 0))


def _check_reply(where: str, reply: Reply) -> None:
    if reply.content is None and not reply.tool_calls and reply.error is None:
        raise SettingError(f"{where}: reply says nothing: give it content, tool_calls or error")
    if reply.error is not None and not 400 <= reply.error.status <= 599:
        raise SettingError(f"{where}: reply.error.status is {reply.error.status}: use 400 to 599")
    for key, low in (("chunk", 1), ("latency", 0), ("delay", 0), ("drop_after", 0), *_TOKENS):
        value = getattr(reply, key)
        if value is not None and value < low:
            raise SettingError(f"{where}: reply.{key} is {value}: it must be at least {low}")
    try:
        check(msgspec.to_builtins(reply))
    except BadTemplate as error:
        raise SettingError(f"{where}: {error}") from error


def _explain(error: msgspec.ValidationError) -> str:
    misfit = misfit_of(error)
    if not misfit.unknown:
        return str(error)
    where = re.sub(r"\[.*?\]", "", misfit.place)
    shape = {"match": Match, "reply": Reply, "reply.tool_calls": CallReply, "reply.error": ErrorReply}.get(where, Rule)
    place = f" in {misfit.place}" if misfit.place else ""
    return f"unknown key {misfit.unknown!r}{place}; known keys: {', '.join(shape.__struct_fields__)}"


NUMBER_PATTERN = r"-?\d[\d,_]*(?:\.\d+)?"

ONE_EXPRESSION = re.compile(r"\s*\{\{((?:(?!\{\{|\}\}|\{%).)*)\}\}\s*", re.DOTALL)
"""A text that is one expression and nothing else keeps its type: `"{{ 2 + 3 }}"` gives 5, not "5"."""


class BadTemplate(Exception):
    """A template cannot be read, or asks for what the request does not have."""


def find(text: object, pattern: str) -> str:
    """Return the first match of a regular expression: its group 1 if it has one. Raises BadTemplate."""
    found = re.search(pattern, str(text), re.DOTALL | re.IGNORECASE)
    if found is None:
        raise BadTemplate(f"nothing matches {pattern!r} in {str(text)[:120]!r}")
    return str(found[1] if found.re.groups else found[0])


def number(text: object, pattern: str = NUMBER_PATTERN) -> int | float:
    """Return the number in what `find` finds; commas and underscores group digits. Raises BadTemplate."""
    digits = find(find(text, pattern), NUMBER_PATTERN).replace(",", "").replace("_", "")
    return float(digits) if "." in digits else int(digits)


def _fromjson(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadTemplate(f"fromjson: {error} in {str(text)[:120]!r}") from error


_environment = ImmutableSandboxedEnvironment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
_environment.globals.update(number=number, find=find)
_environment.filters.update(number=number, find=find, fromjson=_fromjson)


def render(value: Any, view: RequestView) -> Any:
    """Return `value` with every text in it rendered, at any depth. Raises BadTemplate."""
    names = {name: getattr(view, name) for name in view.__struct_fields__} | {"has_tool": view.has_tool}
    return _walk(value, lambda text: _rendered(text, names))


def check(value: Any) -> None:
    """Raise BadTemplate when a text in `value` is no template."""
    _walk(value, _compiled)


def _walk(value: Any, each: Callable[[str], Any]) -> Any:
    if isinstance(value, str):
        return each(value)
    if isinstance(value, dict):
        return {key: _walk(item, each) for key, item in value.items()}
    if isinstance(value, list):
        return [_walk(item, each) for item in value]
    return value


@functools.lru_cache(maxsize=1024)
def _compiled(text: str) -> Callable[..., Any]:
    try:
        if one := ONE_EXPRESSION.fullmatch(text):
            return _environment.compile_expression(one[1].strip(), undefined_to_none=False)
        return _environment.from_string(text).render
    except jinja2.TemplateSyntaxError as error:
        raise BadTemplate(f"template {text[:80]!r}: {error.message}") from error


def _rendered(text: str, names: dict[str, Any]) -> Any:
    if "{" not in text:
        return text
    try:
        value = _compiled(text)(**names)
        if not isinstance(value, jinja2.Undefined):
            return msgspec.to_builtins(value, enc_hook=_plain)
    except BadTemplate as error:
        raise BadTemplate(f"template {text[:80]!r}: {error}") from error
    # A template that handles the texts of a stranger's request may fail in many ways.
    except (jinja2.TemplateError, ArithmeticError, LookupError, NameError, TypeError, ValueError) as error:
        raise BadTemplate(f"template {text[:80]!r}: {error}") from error
    raise BadTemplate(f"template {text[:80]!r}: {value._undefined_message}")


def _plain(value: Any) -> Any:
    """Return as a plain value what filters give: marked-up text, and things to loop over."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Iterable):
        return list(value)
    raise TypeError(f"it gives a {type(value).__name__}, which JSON cannot say")


FINAL_ANSWER = "final_answer"
"""A tool of this name ends the conversation, so it is called after all others."""


class ScriptPlayer:
    """Plays a script; an empty one is the mode `auto`."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self._release = asyncio.Event()

    async def respond(self, view: RequestView, body: dict[str, Any], line: LogLine) -> PacedResponse:
        """Return the reply of the first rule that matches, or the automatic one."""
        most = self.script.context
        if most is not None and view.tokens > most:
            line.rule = "context"
            return respond_with(_too_long(view.tokens, most), view, line)
        chosen = self.script.choose(view)
        line.rule = chosen[0] if chosen else "auto"
        try:
            reply = render_reply(chosen[1], view) if chosen else auto_reply(view)
        except BadTemplate as error:
            # 400, for asking again would fail again.
            message = f"rule {line.rule!r}: {error}"
            reply = Reply(error=ErrorReply(status=400, message=message, code="script_error"))
        if view.in_text and reply.tool_calls:
            reply = as_text(reply)
        response = respond_with(reply, view, line)
        response.release = self._release if reply.hold else None
        return response

    def reset(self) -> None:
        """Start the script over."""
        self.script.reset()
        self._release = asyncio.Event()

    def release(self) -> None:
        """Have the replies that are held go out, and those that would be from now on."""
        self._release.set()


def respond_with(reply: Reply, view: RequestView, line: LogLine) -> PacedResponse:
    """Return the response that plays a reply: streamed if that was asked for, an error always as one JSON body."""
    status, headers = 200, {}
    if reply.error is not None:
        status, data = reply.error.status, error_body(reply.error)
        headers = {name: str(value) for name, value in reply.error.headers.items()}
    else:
        completion = complete(reply, view, line.n, int(time.time()))
        if view.stream:
            headers = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
            streamed = _streamed if view.api == "chat" else _streamed_response
            return PacedResponse(200, headers, streamed(reply, completion, view), line)
        data = completion_body(completion) if view.api == "chat" else response_body(completion, view)
    body = msgspec.json.encode(data)
    headers |= {"content-type": "application/json", "content-length": str(len(body))}
    return PacedResponse(status, headers, _one_piece(reply, body), line)


def _too_long(tokens: int, most: int) -> Reply:
    """Return the error of a request that exceeds the context, in the words of real endpoints."""
    message = (
        f"This model's maximum context length is {most} tokens. However, your messages resulted in {tokens} tokens."
        " Please reduce the length of the messages."
    )
    return Reply(error=ErrorReply(status=400, message=message, param="messages", code="context_length_exceeded"))


def render_reply(reply: Reply, view: RequestView) -> Reply:
    """Return the reply with its templates filled in. Raises BadTemplate."""
    data = render(msgspec.to_builtins(reply), view)
    if "content" in data and not isinstance(data["content"], str | None):
        data["content"] = msgspec.json.encode(data["content"]).decode()
    if "error" in data:
        data["error"]["message"] = str(data["error"].get("message", ErrorReply(status=400).message))
    try:
        return msgspec.convert(data, Reply)
    except msgspec.ValidationError as error:
        raise BadTemplate(f"the reply, once rendered, is no reply: {error}") from error


async def _one_piece(reply: Reply, body: bytes) -> AsyncGenerator[bytes, None]:
    await asyncio.sleep(reply.latency)
    if reply.drop_after is not None:
        yield body[: len(body) // 2]
        raise ConnectionCut
    yield body


async def _streamed(reply: Reply, completion: Completion, view: RequestView) -> AsyncGenerator[bytes, None]:
    await asyncio.sleep(reply.latency)
    yield chunk(completion, {"role": "assistant", "content": ""})
    for sent, delta in enumerate(deltas(completion, reply.chunk)):
        if sent == reply.drop_after:
            raise ConnectionCut
        yield chunk(completion, delta)
        await asyncio.sleep(reply.delay)
    if reply.drop_after is not None:
        raise ConnectionCut
    yield chunk(completion, {}, completion.finish)
    if view.include_usage:
        yield usage_chunk(completion)
    yield DONE


async def _streamed_response(reply: Reply, completion: Completion, view: RequestView) -> AsyncGenerator[bytes, None]:
    await asyncio.sleep(reply.latency)
    events = ResponseEvents(completion, view)
    yield events.opening()
    for sent, piece in enumerate(events.pieces(reply.chunk)):
        if sent == reply.drop_after:
            raise ConnectionCut
        yield piece
        await asyncio.sleep(reply.delay)
    if reply.drop_after is not None:
        raise ConnectionCut
    yield events.ending()


_QUOTED = re.compile(r"(?<!\w)(?:'([^'\n]+)'|\"([^\"\n]+)\"|“([^”\n]+)”)(?!\w)")


def auto_reply(view: RequestView) -> Reply:
    """Return the reply to a request that no rule matches."""
    calls = [CallReply(name=name, arguments=_arguments(name, view)) for name in _due(view)]
    if calls:
        return Reply(tool_calls=calls if view.parallel else calls[:1])
    if view.schema is not None:
        value = example(view.schema) if view.schema else {"answer": _summary(view)}
        return Reply(content=json.dumps(value, ensure_ascii=False))
    return Reply(content=_summary(view))


def _due(view: RequestView) -> list[str]:
    """Return the names of the tools to call now."""
    choice = view.tool_choice
    if choice == "none" or not view.tools:
        return []
    if choice in view.tools:
        return [choice]
    due = [name for name in view.tools if name not in view.called and name != FINAL_ANSWER]
    if not due and FINAL_ANSWER in view.tools:
        return [FINAL_ANSWER]
    # An endpoint that gets "required" must call something, even for the second time.
    return due or (view.tools[:1] if choice == "required" else [])


def _arguments(name: str, view: RequestView) -> dict[str, Any]:
    schema = view.offered[name]
    arguments = example({"type": "object", **schema})
    if not isinstance(arguments, dict):
        return {}
    text = _summary(view) if name == FINAL_ANSWER else _quoted(view.user)
    if text is not None:
        for key, shape in (schema.get("properties") or {}).items():
            if isinstance(shape, dict) and shape.get("type", "string") == "string" and _is_free(shape):
                return {**arguments, key: text}
    return arguments


def _quoted(question: str) -> str | None:
    """Return the text that the last user message quotes: what a tool's first free text is about."""
    found = _QUOTED.search(question)
    return found and next(text for text in found.groups() if text)


def _is_free(shape: dict[str, Any]) -> bool:
    narrow = ("enum", "const", "pattern", "format", "maxLength", "$ref", "anyOf", "oneOf", "allOf")
    return not any(key in shape for key in narrow)


def _summary(view: RequestView) -> str:
    returned = [f"{name}: {_cut(text)}" for name, texts in view.results.items() for text in texts]
    results = "; ".join(returned) if returned else "no tool was called"
    return f"[{NOT_AN_AI}] Asked: {_cut(view.first)} | Tools returned: {results}"


def _cut(text: str, limit: int = 200) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"

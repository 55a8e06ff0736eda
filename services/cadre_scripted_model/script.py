"""Read and check scripts in YAML: rules that map requests to replies, whose texts are Jinja2 templates over the
request."""

import functools
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jinja2
import msgspec
from jinja2.sandbox import ImmutableSandboxedEnvironment

from cadre.errors import SettingError
from cadre.spec.yaml_file import read_yaml
from cadre.structs import misfit_of
from cadre_scripted_model.request import CallReply, ErrorReply, Reply, RequestView


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
        """Returns the regular expressions that are given, by field."""
        found = {key: getattr(self, key) for key in ("model", "user", "first", "system", "last", "tool")}
        return {key: pattern for key, pattern in found.items() if pattern is not None}


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A rule: the requests that match, and their reply."""

    name: str = ""
    match: Match = Match()
    reply: Reply | list[Reply]
    """One reply, or a list: the nth request gets the nth, and the last one repeats."""

    def replies(self) -> list[Reply]:
        """Returns the replies in order, also when there is only one."""
        return self.reply if isinstance(self.reply, list) else [self.reply]


class Script:
    """Rules in order, and how often each has answered since the process started or was reset."""

    def __init__(self, rules: list[Rule], context: int | None = None) -> None:
        self.rules = rules
        self.context = context
        """Tokens that a request may take up; None: as many as it likes."""
        self._hits = [0] * len(rules)

    def choose(self, view: RequestView) -> tuple[str, Reply] | None:
        """Returns the name and the reply, not yet rendered, of the first rule that matches, and counts it."""
        for index, rule in enumerate(self.rules):
            if matches(rule.match, view, self._hits[index]):
                replies = rule.replies()
                reply = replies[min(self._hits[index], len(replies) - 1)]
                self._hits[index] += 1
                return rule.name, reply
        return None

    def reset(self) -> None:
        """Begins to count anew."""
        self._hits = [0] * len(self.rules)


def matches(match: Match, view: RequestView, hits: int) -> bool:
    """Returns whether a rule that has answered `hits` requests answers this one."""
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
    """Returns the script in a file. Raises SettingError naming the file, the rule and the key."""
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
    shape = {"match": Match, "reply": Reply, "reply.tool_calls": CallReply, "reply.error": ErrorReply}.get(
        where, Rule
    )
    place = f" in {misfit.place}" if misfit.place else ""
    return f"unknown key {misfit.unknown!r}{place}; known keys: {', '.join(shape.__struct_fields__)}"


NUMBER_PATTERN = r"-?\d[\d,_]*(?:\.\d+)?"

ONE_EXPRESSION = re.compile(r"\s*\{\{((?:(?!\{\{|\}\}|\{%).)*)\}\}\s*", re.DOTALL)
"""A text that is one expression and nothing else keeps its type: `"{{ 2 + 3 }}"` gives 5, not "5"."""


class BadTemplate(Exception):
    """A template cannot be read, or asks for what the request does not have."""


def find(text: object, pattern: str) -> str:
    """Returns the first match of a regular expression: its group 1 if it has one. Raises BadTemplate."""
    found = re.search(pattern, str(text), re.DOTALL | re.IGNORECASE)
    if found is None:
        raise BadTemplate(f"nothing matches {pattern!r} in {str(text)[:120]!r}")
    return str(found[1] if found.re.groups else found[0])


def number(text: object, pattern: str = NUMBER_PATTERN) -> int | float:
    """Returns the number in what `find` finds; commas and underscores group digits. Raises BadTemplate."""
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
    """Returns `value` with every text in it rendered, at any depth. Raises BadTemplate."""
    names = {name: getattr(view, name) for name in view.__struct_fields__} | {"has_tool": view.has_tool}
    return _walk(value, lambda text: _rendered(text, names))


def check(value: Any) -> None:
    """Raises BadTemplate when a text in `value` is no template."""
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
    # Whatever a template does with the texts of a stranger's request may fail in its own way.
    except (jinja2.TemplateError, ArithmeticError, LookupError, NameError, TypeError, ValueError) as error:
        raise BadTemplate(f"template {text[:80]!r}: {error}") from error
    raise BadTemplate(f"template {text[:80]!r}: {value._undefined_message}")


def _plain(value: Any) -> Any:
    """Returns as a plain value what filters give: marked-up text, and things to loop over."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Iterable):
        return list(value)
    raise TypeError(f"it gives a {type(value).__name__}, which JSON cannot say")

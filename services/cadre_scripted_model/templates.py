"""Render the templates in replies: Jinja2 over the request, so that an answer can be computed from tool results."""

import functools
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

import jinja2
import msgspec
from jinja2.sandbox import ImmutableSandboxedEnvironment

from cadre_scripted_model.request import RequestView

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

"""Templates and conditions over JSON values, in Jinja2's sandbox as approval policies are: nothing is ever evaluated
as Python, and what a value holds is never read as a template.

A template that is one expression (`{{ order.lines }}`) gives the expression's value, any other text gives text.
"""

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from cadre.spec.templates.template_prices import price_of_whole
from cadre.spec.templates.template_work import charge_compiling, charge_parsing, work_of_one_rendering

_SHOWN = 300
"""Characters of a text that an error repeats."""

_FAILS = (ArithmeticError, AttributeError, LookupError, RecursionError, SyntaxError, TypeError, ValueError)
"""Errors that an expression over any values may raise, beyond those of templates."""


class ExpressionError(Exception):
    """A template or condition that has no value for the values in hand; `why` says so without its text."""

    def __init__(self, text: str, why: Exception) -> None:
        super().__init__(f"{_shown(text)} has no value: {why}")
        self.why = str(why)


class NoTemplate(ValueError):
    """A text that is no template or condition; `why` says so without the text."""

    def __init__(self, text: str, kind: str, why: str) -> None:
        super().__init__(f"{_shown(text)} is no {kind}: {why}")
        self.why = why


class _Compiled(NamedTuple):
    evaluate: Callable[[dict[str, Any]], Any]
    tokens: int


def check_expression(text: str) -> frozenset[str]:
    """Return the names in a condition. Raise ValueError for an invalid text."""
    return _checked(text, is_condition=True)


def check_template(value: Any) -> frozenset[str]:
    """Return the names in all templates of a JSON value. Raise ValueError for an invalid text, and for templates that
    together take more work than a decision may."""
    found: frozenset[str] = frozenset()
    for text in templates_in(value):
        if _is_template(text):
            found |= _checked(text, is_condition=False)
    return found


def parsed(text: str, *, is_condition: bool) -> Any:
    """Return the syntax tree of a template or condition. Raise ValueError for an invalid text."""
    from jinja2 import TemplateSyntaxError

    try:
        return environment().parse("{{ " + text + "\n}}" if is_condition else text.strip())
    except TemplateSyntaxError as error:
        raise NoTemplate(text, "expression" if is_condition else "template", error.message or "") from error


def holds(text: str, values: Mapping[str, Any]) -> bool:
    """Return whether a condition is true of the values. Raises ExpressionError."""
    return bool(evaluated(text, values))


def filled(value: Any, values: Mapping[str, Any]) -> Any:
    """A JSON value with the values in place of its templates. Raises ExpressionError."""
    if isinstance(value, str):
        return _evaluated(value, _filling, values) if _is_template(value) else value
    if isinstance(value, dict):
        return {key: filled(one, values) for key, one in value.items()}
    return [filled(one, values) for one in value] if isinstance(value, list) else value


def evaluated(text: str, values: Mapping[str, Any]) -> Any:
    """Return the value of an expression. Raises ExpressionError."""
    return _evaluated(text, _expression, values)


def _is_template(text: str) -> bool:
    return "{{" in text or "{%" in text


def templates_in(value: Any) -> Iterator[str]:
    """The texts in a JSON value, keys left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from templates_in(one)


def _evaluated(text: str, compiled: Callable[[str], _Compiled], values: Mapping[str, Any]) -> Any:
    from jinja2 import TemplateError, Undefined

    try:
        evaluate, tokens = compiled(text)
        charge_compiling(text, tokens)
        value = evaluate(dict(values))
        if isinstance(value, Undefined):
            str(value)  # raises, with the name that is not there
        return _as_json(value)
    except (TemplateError, *_FAILS) as error:
        raise ExpressionError(text, error) from error


def _shown(text: str) -> str:
    text = text.strip()
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def _as_json(value: Any) -> Any:
    """Return a value that a journal can hold. Raises ValueError for half a surrogate pair, infinity, and a number of
    too many digits; TypeError for a value of another type."""
    if isinstance(value, str):
        value.encode()
        return value
    if value is not None and not isinstance(value, dict | list | tuple | bool | int | float):
        value = list(value)  # what methods such as `items` give
    price_of_whole(work_of_one_rendering(), value)
    found = msgspec.to_builtins(value, str_keys=True)
    json.dumps(found, allow_nan=False, ensure_ascii=False).encode()
    return found


@functools.cache
def environment() -> Any:
    """Return the environment of all templates and expressions over JSON values."""
    # Imported here: commands that evaluate nothing should not load a template engine.
    from jinja2 import StrictUndefined

    from cadre.spec.templates.bounded_environment import BoundedEnvironment

    return BoundedEnvironment(undefined=StrictUndefined)


@functools.lru_cache(maxsize=1024)
def _expression(text: str) -> _Compiled:
    from jinja2 import TemplateSyntaxError

    try:
        evaluate = environment().compile_expression(text.strip(), undefined_to_none=False)
    except TemplateSyntaxError as error:
        raise NoTemplate(text, "expression", error.message or "") from error
    return _Compiled(evaluate, _tokens(text))


@functools.lru_cache(maxsize=1024)
def _filling(text: str) -> _Compiled:
    from jinja2 import TemplateSyntaxError, nodes

    try:
        body = environment().parse(text.strip()).body
        if len(body) == 1 and isinstance(body[0], nodes.Output) and len(body[0].nodes) == 1:
            return _expression(text.strip()[2:-2].strip("-+"))
        template = environment().from_string(text)
    except TemplateSyntaxError as error:
        raise NoTemplate(text, "template", error.message or "") from error
    return _Compiled(template.render, _tokens(text))


@functools.lru_cache(maxsize=1024)
def _names(text: str, is_condition: bool) -> tuple[frozenset[str], int]:
    from jinja2 import meta

    tree = parsed(text, is_condition=is_condition)
    names = frozenset(meta.find_undeclared_variables(tree) - environment().globals.keys())
    return names, _tokens(text)


def _checked(text: str, *, is_condition: bool) -> frozenset[str]:
    names, tokens = _names(text, is_condition)
    try:
        charge_parsing(tokens)
    except OverflowError as error:
        raise ValueError(f"there are too many templates: {error}") from error
    return names


def _tokens(text: str) -> int:
    from cadre.spec.templates.bounded_environment import tokens_of

    return tokens_of(environment(), text)

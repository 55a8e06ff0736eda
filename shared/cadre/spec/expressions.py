"""Templates and conditions over JSON values, in Jinja2's sandbox as approval policies are: nothing is ever evaluated
as Python, and what a value holds is never read as a template.

A template that is one expression (`{{ order.lines }}`) gives the expression's value, any other text gives text.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

_FAILS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What an expression over any values may raise, beside the errors of templates."""

_NOT_REPEATABLE = ("lipsum", "random")
"""By chance they give another value each time; a run decided anew must find the same."""


class ExpressionError(Exception):
    """A template or condition that has no value for the values in hand."""


def check_expression(text: str) -> frozenset[str]:
    """The names in a condition. Raises ValueError for one that is none."""
    _expression(text)
    return _names("{{ " + text + " }}")


def check_template(value: Any) -> frozenset[str]:
    """The names in all templates of a JSON value. Raises ValueError for a text that is none."""
    found: frozenset[str] = frozenset()
    for text in templates_in(value):
        if _is_template(text):
            _filling(text)
            found |= _names(text)
    return found


def parsed(text: str, *, is_condition: bool) -> Any:
    """The syntax tree of a template or condition. Raises ValueError for a text that is none."""
    from jinja2 import TemplateSyntaxError

    try:
        return _environment().parse("{{ " + text + " }}" if is_condition else text.strip())
    except TemplateSyntaxError as error:
        raise ValueError(
            f"{text!r} is no {'expression' if is_condition else 'template'}: {error.message}"
        ) from error


def holds(text: str, values: Mapping[str, Any]) -> bool:
    """Whether a condition is true of the values. Raises ExpressionError."""
    return bool(_evaluated(text, _expression(text), values))


def filled(value: Any, values: Mapping[str, Any]) -> Any:
    """A JSON value with the values in place of its templates. Raises ExpressionError."""
    if isinstance(value, str):
        return _evaluated(value, _filling(value), values) if _is_template(value) else value
    if isinstance(value, dict):
        return {key: filled(one, values) for key, one in value.items()}
    return [filled(one, values) for one in value] if isinstance(value, list) else value


def _is_template(text: str) -> bool:
    return "{{" in text or "{%" in text


def templates_in(value: Any) -> Iterator[str]:
    """The texts in a JSON value, keys left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from templates_in(one)


def _evaluated(text: str, evaluate: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    from jinja2 import TemplateError, Undefined

    try:
        value = evaluate(dict(values))
        if isinstance(value, Undefined):
            str(value)  # raises, with the name that is not there
        return _as_json(value)
    except (TemplateError, *_FAILS) as error:
        raise ExpressionError(f"{text.strip()!r} has no value: {error}") from error


def _as_json(value: Any) -> Any:
    if value is None or isinstance(value, str | bool | int | float):
        return value if type(value) is not str else str(value)
    if not isinstance(value, dict | list | tuple):
        value = list(value)  # what filters such as `map` give
    return msgspec.to_builtins(value, str_keys=True)


@functools.cache
def _environment() -> Any:
    # Imported here: commands that evaluate nothing should not load a template engine.
    from jinja2 import StrictUndefined

    from cadre.spec.bounded_environment import BoundedEnvironment

    environment = BoundedEnvironment(undefined=StrictUndefined, autoescape=False)
    for name in _NOT_REPEATABLE:
        environment.globals.pop(name, None)
        environment.filters.pop(name, None)
    return environment


@functools.lru_cache(maxsize=1024)
def _expression(text: str) -> Callable[..., Any]:
    from jinja2 import TemplateSyntaxError

    try:
        found: Callable[..., Any] = _environment().compile_expression(text.strip(), undefined_to_none=False)
    except TemplateSyntaxError as error:
        raise ValueError(f"{text!r} is no expression: {error.message}") from error
    return found


@functools.lru_cache(maxsize=1024)
def _filling(text: str) -> Callable[..., Any]:
    from jinja2 import TemplateSyntaxError, nodes

    try:
        body = _environment().parse(text.strip()).body
        if len(body) == 1 and isinstance(body[0], nodes.Output) and len(body[0].nodes) == 1:
            return _expression(text.strip()[2:-2].strip("-+"))
        render: Callable[..., Any] = _environment().from_string(text).render
    except TemplateSyntaxError as error:
        raise ValueError(f"{text!r} is no template: {error.message}") from error
    return render


@functools.lru_cache(maxsize=1024)
def _names(text: str) -> frozenset[str]:
    from jinja2 import meta

    environment = _environment()
    return frozenset(meta.find_undeclared_variables(environment.parse(text)) - environment.globals.keys())

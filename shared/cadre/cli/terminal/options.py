"""Define the options that several commands share, read their NAME=VALUE arguments, and print JSON."""

import json
import math
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from cadre.cli.terminal.output import print_text
from cadre.protocol.tagged import nesting

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_MAX_LEVELS = 800
"""Levels of nested lists and objects that are sent; a gateway reads little more."""


class Duration(click.ParamType[float]):
    """An option that takes a length of time, as seconds or as `90s`, `10m`, `2h`, `3d`; its value is in seconds."""

    name = "duration"

    def __init__(self, least: float = 0.001) -> None:
        """`least`: the fewest seconds that are taken."""
        self.least = least

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds that the text stands for."""
        from cadre.spec.durations import seconds_of

        try:
            seconds = seconds_of(value)
        except ValueError:
            seconds = 0.0
        if seconds < self.least:
            least = f", and at least {self.least:g} s" if self.least >= 1 else ""
            self.fail(f"{value!r} is no length of time: write seconds, or 10m, 2h, 3d{least}", param, ctx)
        return seconds


_BUDGET = ("tokens", "cost", "steps", "depth", "calls", "stored_mb")


def with_options(*options: Callable[[Decorated], Decorated]) -> Callable[[Decorated], Decorated]:
    """Add the arguments and options to a command, in this order."""

    def add(command: Decorated) -> Decorated:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def output_option(form: str) -> Callable[[Decorated], Decorated]:
    """Return the option `-o`, whose value is `form` unless it is `json`."""
    return click.option("-o", "--output", type=click.Choice([form, "json"]), default=form, show_default=True)


bound_options = with_options(
    click.option("--max-steps", type=click.IntRange(min=1), help="Steps before the agent must answer."),
    click.option("--deadline", type=Duration(), help="Seconds (or 10m, 2h), then it ends with what it has found."),
    click.option("--budget-tokens", type=click.IntRange(min=1), help="Tokens for it and all runs below it."),
    click.option(
        "--budget-cost",
        type=click.FloatRange(min=0, min_open=True),
        help="Cost by the price table, for it and all runs below it.",
    ),
    click.option("--budget-steps", type=click.IntRange(min=1), help="Steps, for it and all runs below it."),
    click.option("--budget-depth", type=click.IntRange(min=0), help="Levels of delegation below it."),
    click.option(
        "--budget-calls",
        type=click.IntRange(min=1),
        help="Calls that code makes, for it and all runs below it.",
    ),
    click.option(
        "--budget-stored-mb",
        type=click.FloatRange(min=0, min_open=True),
        help="Megabytes stored for code, for it and all runs below it.",
    ),
)
"""Adds the options that say how far a run may go."""


def following_options(run: str) -> Callable[[Decorated], Decorated]:
    """Return the options that say how the new run is followed; `run` is what their help calls it."""
    return with_options(
        click.option(
            "--ask/--no-ask",
            default=None,
            help="Decide here on calls that wait for a person [on a terminal: yes].",
        ),
        click.option("--detach", is_flag=True, help=f"Print {run}'s id and leave."),
        click.option(
            "--timeout",
            type=Duration(),
            help="Seconds (or 10m, 2h) to wait for its end; the run goes on then.",
        ),
        output_option("text"),
    )


def bounds(options: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a request for a run that bound it, without those that were not given."""
    budget = {field: options[f"budget_{field}"] for field in _BUDGET}
    fields = {
        "max_steps": options["max_steps"],
        "deadline": options["deadline"],
        "budget": {field: most for field, most in budget.items() if most is not None},
    }
    return {key: value for key, value in fields.items() if value not in (None, {})}


def print_json(value: Any) -> None:
    """Print the value on one line of stdout."""
    click.echo(json.dumps(value, ensure_ascii=False))


def print_found(output: str, found: Any, lines: Callable[[], str | Iterable[str]], nothing: str = "") -> None:
    """Print what a command found as JSON if `output` says so, else as `lines` has it; or, where it found nothing and
    there is a word for that, this word on stderr."""
    if output == "json":
        print_json(found)
    elif nothing and not found:
        click.echo(nothing, err=True)
    else:
        text = lines()
        print_text(text if isinstance(text, str) else "\n".join(text))


class _Unsendable(Exception):
    """JSON that can be parsed and would not be sent as it was written."""


def key_values(option: str, texts: tuple[str, ...]) -> dict[str, Any]:
    """Return the values by name. Raises UsageError, naming `option`."""
    pairs = [_pair(option, text) for text in texts]
    keys = [key for key, _ in pairs]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise click.UsageError(f"{option} {twice[0]} is given more than once")
    return dict(pairs)


def text_values(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    """Return the values by name, always as text. Raises UsageError, naming `option`."""
    return {key: text.partition("=")[2] for key, text in zip(key_values(option, texts), texts, strict=True)}


def utf8(what: str, text: str) -> str:
    """Return the text.

    Raises UsageError for bytes that are no UTF-8: Python reads them as surrogates, which JSON cannot carry.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise click.UsageError(f"{what} is not UTF-8 text (at character {error.start + 1})") from error
    return text


def json_value(what: str, text: str) -> Any:
    """Parse JSON; `what` names it in an error. Raises UsageError."""
    try:
        return _parsed(what, utf8(what, text))
    except ValueError as error:
        raise click.UsageError(f"{what} is not JSON: {error} (a text stands in quotes: '\"yes\"')") from error


def json_object(what: str, text: str) -> dict[str, Any]:
    """Parse a JSON object; `what` names it in an error. Raises UsageError."""
    value = json_value(what, text)
    if not isinstance(value, dict):
        raise click.UsageError(f'{what} must be a JSON object, like {{"amount": 50}}')
    return value


def _pair(option: str, text: str) -> tuple[str, Any]:
    key, mark, value = text.partition("=")
    if not mark or not key:
        raise click.UsageError(f"{option} {text!r}: write NAME=VALUE")
    utf8(f"{option} {key!a}", text)
    try:
        return key, _parsed(f"{option} {key}", value)
    except ValueError:
        return key, value


def _parsed(what: str, text: str) -> Any:
    """Parse JSON. Raises ValueError for other text, UsageError for JSON that cannot be sent."""
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_float=_number, object_pairs_hook=_unique)
        nested = nesting(value)
    except _Unsendable as error:
        raise click.UsageError(f"{what}: {error}") from error
    except RecursionError:
        nested = _MAX_LEVELS + 1
    if nested > _MAX_LEVELS:
        raise click.UsageError(f"{what} is nested too deeply: write at most {_MAX_LEVELS} levels")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise _Unsendable(f"the key {twice!r} stands in one object more than once")
    return found


def _number(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise _Unsendable(f"{text[:40]} is too great a number")
    return value


def _no_constant(name: str) -> Any:
    """Refuse NaN and Infinity, which Python's parser knows and JSON does not."""
    raise ValueError(f"{name} is no JSON")

"""Options that several commands have, and what they print as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

from cadre.cli.terminal.duration import Duration

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_BOUNDS = (
    click.option("--max-steps", type=click.IntRange(min=1), help="Steps before the agent must answer."),
    click.option(
        "--deadline", type=Duration(), help="Seconds (or 10m, 2h), then it ends with what it has found."
    ),
    click.option("--budget-tokens", type=click.IntRange(min=1), help="Tokens for it and all runs below it."),
    click.option(
        "--budget-cost",
        type=click.FloatRange(min=0, min_open=True),
        help="Cost by the price table, likewise.",
    ),
    click.option("--budget-steps", type=click.IntRange(min=1), help="Steps, likewise."),
    click.option("--budget-depth", type=click.IntRange(min=0), help="Levels of delegation below it."),
)
_BUDGET = ("tokens", "cost", "steps", "depth")


def output_option(form: str) -> Callable[[Decorated], Decorated]:
    """The option `-o`, whose value is `form` unless it is `json`."""
    return click.option("-o", "--output", type=click.Choice([form, "json"]), default=form, show_default=True)


def bound_options(command: Decorated) -> Decorated:
    """Adds the options that say how far a run may go."""
    return _with(command, _BOUNDS)


def following_options(run: str) -> Callable[[Decorated], Decorated]:
    """The options that say how the new run is followed; `run` is what their help calls it."""
    options = (
        click.option(
            "--ask/--no-ask",
            default=None,
            help="Decide here on calls that wait for a person [on a terminal: yes].",
        ),
        click.option("--detach", is_flag=True, help=f"Print {run}'s id and leave."),
        click.option(
            "--timeout",
            type=click.FloatRange(min=0, min_open=True),
            help="Seconds, then the run is cancelled.",
        ),
        output_option("text"),
    )
    return lambda command: _with(command, options)


def bounds(options: dict[str, Any]) -> dict[str, Any]:
    """The fields of a request for a run that bound it, without those that were not given."""
    budget = {field: options[f"budget_{field}"] for field in _BUDGET}
    fields = {
        "max_steps": options["max_steps"],
        "deadline": options["deadline"],
        "budget": {field: most for field, most in budget.items() if most is not None},
    }
    return {key: value for key, value in fields.items() if value not in (None, {})}


def print_json(value: Any) -> None:
    """Prints the value on one line of stdout."""
    click.echo(json.dumps(value, ensure_ascii=False))


def _with(command: Decorated, options: tuple[Callable[[Decorated], Decorated], ...]) -> Decorated:
    for option in reversed(options):
        command = option(command)
    return command

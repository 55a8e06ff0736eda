"""Options that several commands have, and what they print as JSON."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


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
    """Adds the arguments and options to a command, in this order."""

    def add(command: Decorated) -> Decorated:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def output_option(form: str) -> Callable[[Decorated], Decorated]:
    """The option `-o`, whose value is `form` unless it is `json`."""
    return click.option("-o", "--output", type=click.Choice([form, "json"]), default=form, show_default=True)


bound_options = with_options(
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
    click.option("--budget-calls", type=click.IntRange(min=1), help="Calls that code makes, likewise."),
    click.option(
        "--budget-stored-mb",
        type=click.FloatRange(min=0, min_open=True),
        help="Megabytes stored for code, likewise.",
    ),
)
"""Adds the options that say how far a run may go."""


def following_options(run: str) -> Callable[[Decorated], Decorated]:
    """The options that say how the new run is followed; `run` is what their help calls it."""
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
            help="Seconds (or 10m, 2h), then the run is cancelled.",
        ),
        output_option("text"),
    )


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

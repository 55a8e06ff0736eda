"""Options that say how far a run may go, for each command that starts one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from cadre.cli.terminal.duration import Duration

_OPTIONS = (
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


def bounded(command: Callable[..., int]) -> Callable[..., int]:
    """Adds the options."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def bounds(options: dict[str, Any]) -> dict[str, Any]:
    """What a request for a run says of them; without those that were not given."""
    budget = {field: options[f"budget_{field}"] for field in _BUDGET}
    given = {
        "max_steps": options["max_steps"],
        "deadline": options["deadline"],
        "budget": {field: most for field, most in budget.items() if most is not None},
    }
    return {key: value for key, value in given.items() if value not in (None, {})}

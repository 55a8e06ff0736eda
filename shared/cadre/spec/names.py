"""The rules for names and numbers in a spec, and the name that every agent's model is offered in addition."""

import re
from collections.abc import Iterable

from cadre.errors import SpecError

TEAM_FILE = "team.yaml"
"""The file that names the agents of a team, in the team's folder."""

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""A name is one token of a NATS subject and a function name for a model."""

MOST = 1e12
"""The most that any number in a spec may be: no clock of the bus goes beyond it."""

Bound = tuple[str, float | None, float]
"""A key of the spec, its value, and the least that it may be."""


def check_name(what: str, name: str) -> None:
    """Raise SpecError unless `name` can be a subject token and a function name."""
    if not NAME.fullmatch(name):
        raise SpecError(
            f"{what} name {name!r}: use 1 to 64 of the letters a-z, A-Z, digits, '_' and '-'"
            " (it becomes part of NATS subjects)"
        )


def check_bounds(agent: str, bounds: Iterable[Bound]) -> None:
    """Raise SpecError for the first value that is out of its bounds; None is no value."""
    for key, value, least in bounds:
        if value is not None and not least <= value <= MOST:
            bound = f"at most {MOST:g}" if value > MOST else f"at least {least:g}"
            raise SpecError(f"must be {bound}", key=key, agent=agent)


FINAL_ANSWER = "final_answer"

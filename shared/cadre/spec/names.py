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


def check_name(what: str, name: str, key: str = "") -> None:
    """Raise SpecError, which names `key`, unless `name` can be a subject token and a function name."""
    if not NAME.fullmatch(name):
        raise SpecError(
            f"{what} name {name!r}: use 1 to 64 of the letters a-z, A-Z, digits, '_' and '-'"
            " (it becomes part of NATS subjects)",
            key=key,
        )


def check_bounds(agent: str, bounds: Iterable[Bound]) -> None:
    """Raise SpecError for the first value that is out of its bounds; None is no value."""
    for key, value, least in bounds:
        if value is not None and not least <= value <= MOST:
            bound = f"at most {MOST:g}" if value > MOST else f"at least {least:g}"
            raise SpecError(f"must be {bound}", key=key, agent=agent)


FINAL_ANSWER = "final_answer"


_PATH = re.compile(r"(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+")
_OWN_PATHS = frozenset({"v1", "a2a", "agui", "mcp", "auth", "console", "healthz", "readyz", "metrics", "openapi.json"})
"""First segments of the gateway's own paths, which what is left of a path without its prefix must not look like."""


def checked_path(given: str) -> str:
    """Return a path for the gateway to be below, without a slash at its end; "" for none. Raises ValueError."""
    path = given.rstrip("/")
    if path and not _PATH.fullmatch(path):
        raise ValueError("write a path such as /agents, of letters, digits, '.', '_', '~' and '-'")
    if path and path.split("/")[1] in _OWN_PATHS:
        raise ValueError("the gateway has paths that begin so: choose another one")
    return path

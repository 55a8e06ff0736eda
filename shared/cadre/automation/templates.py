"""Templates over what comes with a tick or an event: Jinja2 in its sandbox, which reads values and changes nothing."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from cadre.errors import SpecError
from cadre.spec.expressions import environment

MAX_TEXT_CHARS = 200_000
"""A rendered text may be no longer: it is stored and becomes a run's task."""


def check_template(key: str, text: str) -> None:
    """Checks the syntax of a template. Raises SpecError, which names `key`."""
    from jinja2 import TemplateSyntaxError

    if not text.strip():
        raise SpecError("is empty", key=key)
    try:
        environment().parse(text)
    except TemplateSyntaxError as error:
        raise SpecError(f"line {error.lineno}: {error.message}", key=key) from error


def render(key: str, text: str, values: Mapping[str, Any]) -> str:
    """The template with the values filled in. Raises SpecError, which names `key`, when that fails or says nothing."""
    check_template(key, text)
    try:
        rendered: str = _compiled(text).render(dict(values))
        rendered.encode()  # half a surrogate pair cannot be stored
    except Exception as error:
        # A template runs over whatever others sent: each way in which it fails is told, and none ends the process.
        raise SpecError(str(error), key=key) from error
    if not rendered.strip():
        raise SpecError("the template says nothing with these values", key=key)
    if len(rendered) > MAX_TEXT_CHARS:
        raise SpecError(f"the text has over {MAX_TEXT_CHARS:,} characters", key=key)
    return rendered


@lru_cache(maxsize=256)
def _compiled(text: str) -> Any:
    return environment().from_string(text)

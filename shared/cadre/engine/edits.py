"""What a person may edit of a run that goes on: a queue of tasks, a plan. The agent's kind says what and how."""

from typing import Any, NamedTuple

from cadre.protocol.codes import EditRefusal


class Editable(NamedTuple):
    """What a person may edit of a run now."""

    name: str
    """What it is called over HTTP: `queue` or `plan`."""
    version: int
    """Counts up with every change, also those that the run makes itself: an edit names the one that it is based on."""
    state: Any
    """All of it, as JSON."""


class EditNotAllowed(Exception):
    """The edit cannot be made; the text says why, for the person who sent it."""

    def __init__(self, message: str, code: EditRefusal = "invalid-edit") -> None:
        super().__init__(message)
        self.code = code

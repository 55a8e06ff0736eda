"""Calls that an MCP server does not answer at once: as a task that it works on, or with questions to a person first.

What is known of such a call stands in its journal, between two rounds of it; here is what that means, without I/O.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from cadre.protocol.rounds import PersonsAnswer, Unfinished

_GROWTH = 1.5
_MOST_SECONDS = 15.0
"""The longest pause between two questions for a task, unless its server wants a longer one."""
ABSENCE_SECONDS = 600.0
"""How long a server may be out of reach before the call of a task is given up."""
_AWAY_SECONDS = 10.0


class Question(msgspec.Struct, frozen=True):
    """What a server asks a person."""

    message: str
    schema: dict[str, Any] = {}


class ElicitationAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a server is told that a person has said."""

    action: Literal["accept", "decline"]
    content: dict[str, Any] | None = None


class CallSoFar(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a call has come."""

    since: float
    """When it was begun, Unix seconds."""
    task: str = ""
    """The server's task; else it is to be sent again, with the answers."""
    request_state: str | None = None
    """What the server wants to read then."""
    questions: dict[str, Question] = {}
    """Those that nobody has answered."""
    answers: dict[str, ElicitationAnswer] = {}
    quiet: int = 0
    """How often the task was asked for in vain."""
    away_since: float | None = None

    def asked(self, answer: PersonsAnswer) -> CallSoFar:
        """With the answer to the first of its questions."""
        (key, _), *others = self.questions.items()
        said = ElicitationAnswer(answer.action, answer.content if answer.action == "accept" else None)
        return msgspec.structs.replace(self, questions=dict(others), answers={**self.answers, key: said})

    def question(self) -> Unfinished:
        """The pause until a person has answered the first of its questions."""
        first = next(iter(self.questions.values()))
        # To tell a task an answer twice does no harm; a call that is sent again may have an effect.
        return self._pause(question=first.message, schema=first.schema, may_repeat=bool(self.task))

    def retry(self) -> Unfinished:
        """The pause before a call is sent again whose server wants that, and asks nothing."""
        return self._pause(seconds=1.0)

    def pause(self, poll_ms: float | None) -> Unfinished:
        """The pause before the task is asked for again."""
        wanted = (poll_ms or 0) / 1000
        state = msgspec.structs.replace(self, quiet=self.quiet + 1, answers={}, away_since=None)
        return state._pause(seconds=max(wanted, min(_GROWTH**self.quiet, _MOST_SECONDS)), may_repeat=True)

    def absence(self, now: float) -> Unfinished | None:
        """The pause before a server is tried that is out of reach; None when that has lasted too long."""
        since = self.away_since or now
        if now - since > ABSENCE_SECONDS:
            return None
        return msgspec.structs.replace(self, away_since=since)._pause(seconds=_AWAY_SECONDS, may_repeat=True)

    def _pause(self, **fields: Any) -> Unfinished:
        return Unfinished(state=msgspec.to_builtins(self), **fields)


def so_far(state: dict[str, Any]) -> CallSoFar:
    """How far the call has come, as its journal has it."""
    return msgspec.convert(state, CallSoFar)

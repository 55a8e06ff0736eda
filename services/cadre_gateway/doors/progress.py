"""The work of a tree of runs and its pauses, derived from its journals: the same entries always give the same."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from cadre.journal import events as ev
from cadre.journal.entry import Entry
from cadre.journal.events import AnyEvent
from cadre.ports import Stored
from cadre.protocol.messages import Task
from cadre.protocol.tagged import for_people
from cadre.protocol.topology import is_within, tree_of
from cadre.spec.names import FINAL_ANSWER
from cadre.views.held_calls import asked_by
from cadre.views.rows import call_key
from cadre.views.story import NOTHING, Story, Update

_DULL = ("run.accepted", "approval.requested", "run.finished")
"""Events of which the caller learns by other means."""


class Place(NamedTuple):
    """The place where the answer to a turn begins: behind this sequence in the journals of this run's tree."""

    run: str
    after: int = 0


class PendingAnswer(NamedTuple):
    """A call that waits for a word from outside."""

    run: str
    request: ev.ApprovalRequested
    is_callers: bool
    """True if it is a function of the caller, who answers it; else a person decides."""
    asks: str = ""
    """The text that a person reads: the whole question, the tool's `approval_text`, or the name with its arguments."""


class Pause(NamedTuple):
    """A place at which the run waits for words from outside, some of them new."""

    seq: int
    at: float
    held: dict[str, PendingAnswer]
    """All calls that wait, by id."""


class Tokens(NamedTuple):
    """The tokens that the models of a tree were sent and have written."""

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0

    def plus(self, answered: ev.ModelAnswered) -> Tokens:
        """With those of one more answer."""
        return Tokens(
            self.input + answered.usage.input_tokens,
            self.output + answered.usage.output_tokens,
            self.cached + answered.cached_tokens,
            self.reasoning + answered.reasoning_tokens,
        )


class Progress:
    """A root run with all below it, as far as its entries were taken in, in stream order."""

    def __init__(self, run: str, after: int = 0) -> None:
        """The work of the run behind the sequence `after` is reported."""
        self.run, self.after = run, after
        self.seq = 0
        """Of the last entry."""
        self.at = 0.0
        self.task: Task | None = None
        self.held: dict[str, PendingAnswer] = {}
        self.pauses: list[Pause] = []
        self.decided: dict[str, ev.ApprovalDecided] = {}
        self.gone: dict[str, Place] = {}
        """The places of calls that ceased to wait: before the entry that says so, where the answer to it begins."""
        self.messages: list[tuple[int, str]] = []
        """The messages of people to the root run, each behind the sequence before it."""
        self.end: ev.RunFinished | None = None
        self.tokens = Tokens()
        """Used behind `after`."""
        self.answers_written = 0
        """The number of calls of the root run's model behind `after` that have written an answer, or may have before
        they were lost: if there is only one, all text sent live is part of its answer."""
        self._story = Story(tree_of(run), rows=True)
        self._open: dict[str, set[str]] = {}
        """The calls without a result, by the id of their run. The run of a member has the id of its call."""
        self._changed: set[str] = set()
        """The calls that began or ceased to wait since the last pause."""

    @property
    def pause(self) -> Pause | None:
        """The first pause behind `after`."""
        return next((pause for pause in self.pauses if pause.seq > self.after), None)

    @property
    def questions(self) -> dict[str, PendingAnswer]:
        """Return the calls that wait for a person's word."""
        return {call: held for call, held in self.held.items() if not held.is_callers}

    @property
    def is_settled(self) -> bool:
        """Return whether there is nothing more to report: the run has paused behind `after`, or has ended."""
        return self.pause is not None or self.end is not None

    def place_behind(self, calls: Iterable[str]) -> Place:
        """Return the place at which the answer to the last word on these calls begins."""
        return max((self.gone[call] for call in calls if call in self.gone), default=Place(self.run))

    @property
    def before(self) -> Pause | None:
        """Return the last pause up to `after`, which the caller has answered."""
        return next((pause for pause in reversed(self.pauses) if pause.seq <= self.after), None)

    def take(self, stored: Stored) -> list[str]:
        """Take in the next entry; return its news, as lines."""
        seq, entry = stored.seq, stored.entry
        before, self.seq, self.at = self.seq, seq, entry.at
        update = self._story.take(seq, entry)
        if update is NOTHING:
            return []
        if entry.run == self.run and self.task is not None and self.task.terms.ends_with_call:
            self._note_last_calls(entry)
        self._note_calls(update, entry, before)
        for event in entry.events:
            if entry.run == self.run:
                self._note_root(event, before)
            if type(event) is ev.ModelAnswered and seq > self.after:
                self.tokens = self.tokens.plus(event)
        self._note_pause()
        return [line.text for line in update.lines if line.event not in _DULL] if seq > self.after else []

    def _note_root(self, event: AnyEvent, before: int) -> None:
        """Take note of an event of the root run."""
        match event:
            case ev.RunAccepted(task=task):
                self.task = task
            case ev.ModelCalled(attempt=attempt) if self.seq > self.after:
                self.answers_written += attempt > 1
            case ev.ModelAnswered(calls=calls) if self.seq > self.after:
                self.answers_written += any(call.name == FINAL_ANSWER for call in calls)
            case ev.MessageReceived(text=text):
                self.messages.append((before, text))
            case ev.RunFinished() if self.end is None:
                self.end = event
            case _:
                pass

    def _note_calls(self, update: Update, entry: Entry, before: int) -> None:
        for call in update.gone:
            self.held.pop(call.call, None)
            self.gone[call.call] = Place(self.run, before)
            self._changed.add(call.call)
        for event in entry.events:
            if type(event) is ev.ApprovalDecided:
                self.decided[event.call] = event
            elif type(event) is ev.ApprovalRequested and any(one.call == event.call for one in update.held):
                is_callers = event.kind == "function"
                self.held[event.call] = PendingAnswer(entry.run, event, is_callers, asked_by(event, entry))
                self._changed.add(event.call)
        for run in update.ended:
            self.held = {call: one for call, one in self.held.items() if not is_within(one.run, run)}
        for row in update.rows:
            if row.kind == "call":
                name = row.key.removeprefix(call_key(""))
                calls = self._open.setdefault(row.run, set())
                (calls.discard if row.ended_at else calls.add)(name)

    def _note_last_calls(self, entry: Entry) -> None:
        """Note the calls with which the run ends, because its caller wanted nothing else: a pause that stays."""
        if not any(type(event) is ev.RunFinished and event.state == "success" for event in entry.events):
            return
        asked = [one for one in entry.events if type(one) is ev.ApprovalRequested and one.kind == "function"]
        held = {call: one for call, one in self.held.items() if one.is_callers}
        held |= {one.call: PendingAnswer(entry.run, one, True) for one in asked}
        if held:
            self.pauses.append(Pause(self.seq, self.at, held))

    def _note_pause(self) -> None:
        """Note a pause: a person is asked something new, or everything waits for answers from outside, and calls were
        asked about or answered since the last pause. So each call is reported again until it is answered."""
        if self.end is not None or not self.held:
            return
        fresh = self._changed & self.held.keys()
        asks_person = any(not self.held[call].is_callers for call in fresh)
        # The caller answers its functions all at once; their answers come one by one.
        asked = {call for call, held in self.pauses[-1].held.items() if held.is_callers} if self.pauses else set()
        is_between = bool(asked & self._changed and asked & self.held.keys())
        if asks_person or (self._changed and not is_between and self._is_idle(self.run)):
            self.pauses.append(Pause(self.seq, self.at, dict(self.held)))
            self._changed = set()

    def _is_idle(self, run: str) -> bool:
        """Return whether every open call of the run waits for an answer from outside, or is a member that is idle."""
        calls = self._open.get(run)
        return bool(calls) and all(call in self.held or self._is_idle(call) for call in calls or ())


TOKEN_BYTES = 4
"""The bytes of UTF-8 that count as one token of an answer: the gateway does not know the tokenizers of models."""


def within_tokens(text: str, tokens: int | None) -> str:
    """Return as much of the beginning of the text as so many tokens hold; None: all of it."""
    if tokens is None or len(raw := text.encode(errors="surrogatepass")) <= tokens * TOKEN_BYTES:
        return text
    return raw[: tokens * TOKEN_BYTES].decode(errors="ignore")


def answer_text(output: Any) -> str:
    """Return an answer as text: JSON unless it is one; files in it by their references."""
    value = for_people(output)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

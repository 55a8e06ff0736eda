"""The story of a tree with what the index keeps beside it: which rows have changed since it was saved. Pure."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from cadre.api.runs import PendingCall
from cadre.journal.entry import Entry
from cadre.journal.events import RunAccepted, RunFinished
from cadre.protocol.messages import Task
from cadre.protocol.tagged import for_people
from cadre.views.held_calls import DecidedCall
from cadre.views.story import Story, Update

MAX_TEXT_CHARS = 20_000
"""So much of a run's task, and of its answer, can be searched."""

MAX_DECIDED = 200
"""Decided calls that the list keeps of one tree; the journals have them all."""


class RunTexts(NamedTuple):
    """What a run can be found by; None: nothing is known of that (any more)."""

    task: str | None = None
    answer: str | None = None


class CallKey(NamedTuple):
    """Names one question to a person: the same call may be asked about again."""

    call: str
    asked_at: float


def key_of(call: PendingCall) -> CallKey:
    """Return the key of what waits for a person."""
    return CallKey(call.call, call.requested_at)


class TreeRuns:
    """All known runs of a delegation tree, with the sequence of the last message that changed each row."""

    def __init__(self, tree: str) -> None:
        self.story = Story(tree)
        self.decided: list[DecidedCall] = []
        """The calls that were decided last, the oldest first."""
        self.changed_runs: dict[str, int] = {}
        self.changed_texts: dict[str, RunTexts] = {}
        self.changed_calls: dict[CallKey, int] = {}

    def add_task(self, seq: int, task: Task) -> None:
        """Take in the task of the root at `seq`."""
        if self.story.add_task(task).runs:
            self.changed_runs[task.run] = seq
            self.changed_texts[task.run] = _texts_of(task)

    def apply(self, seq: int, entry: Entry) -> None:
        """Take in the entry at `seq`; one that was taken in before changes nothing."""
        known = self.story.summaries.get(entry.run)
        was_queued = known is not None and known.state == "queued"
        update = self.story.take(seq, entry)
        if not update.runs:
            return
        self.changed_runs |= dict.fromkeys(update.runs, seq)
        for event in entry.events:
            if not (was_queued and type(event) is RunAccepted):  # its text was noted with its task
                self._note_text(entry.run, event)
        self._note_calls(seq, update)

    def saved(self) -> None:
        """Take note that all of it was saved."""
        self.changed_runs.clear()
        self.changed_texts.clear()
        self.changed_calls.clear()

    def _note_text(self, run: str, event: msgspec.Struct) -> None:
        if type(event) is RunAccepted:
            self.changed_texts[run] = _texts_of(event.task)
        elif type(event) is RunFinished and event.output is not None:
            shown = for_people(event.output)
            text = shown if isinstance(shown, str) else msgspec.json.encode(shown).decode()
            before = self.changed_texts.get(run, RunTexts())
            self.changed_texts[run] = before._replace(answer=text[:MAX_TEXT_CHARS])

    def _note_calls(self, seq: int, update: Update) -> None:
        changed = [*update.held, *update.gone]
        if update.decided:
            known = [*self.decided, *update.decided]
            self.decided = known[-MAX_DECIDED:]
            changed += [one.asked for one in known[:-MAX_DECIDED]]
        self.changed_calls |= {key_of(call): seq for call in changed}


def _texts_of(task: Task) -> RunTexts:
    return RunTexts(task.task[:MAX_TEXT_CHARS])

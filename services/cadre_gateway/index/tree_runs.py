"""The runs of one delegation tree as lists show them: pure, the same entries always give the same."""

from typing import NamedTuple

import msgspec

from cadre.api.approvals import PendingCall
from cadre.api.runs import RunSummary
from cadre.journal.entry import Entry
from cadre.journal.events import RunAccepted, RunFinished
from cadre.protocol.messages import Task
from cadre.protocol.tagged import for_people
from cadre.protocol.topology import parent_of
from cadre_gateway.index.decided_approvals import MAX_DECIDED, DecidedCall, decided_in
from cadre_gateway.index.pending_approvals import pending_changes
from cadre_gateway.index.run_summary import apply_event, first_summary, starts_no_run, summary_of_task

MAX_TEXT_CHARS = 20_000
"""So much of a run's task, and of its answer, can be searched."""


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
    """All known runs of a delegation tree."""

    def __init__(self, tree: str) -> None:
        self.id = tree
        self.last = 0
        """Sequence of the newest entry that was taken in."""
        self.runs: dict[str, RunSummary] = {}
        self.pending: dict[str, dict[str, PendingCall]] = {}
        """The calls that wait for a person, by run and call."""
        self.decided: list[DecidedCall] = []
        """The calls that were decided last, the oldest first."""
        self.changed_runs: dict[str, int] = {}
        self.changed_texts: dict[str, RunTexts] = {}
        self.changed_calls: dict[CallKey, int] = {}
        """Changes since `saved`, with the sequence of the last message that changed each."""

    @property
    def ended(self) -> bool:
        """Whether its root has ended."""
        root = self.runs.get(self.id)
        return root is not None and root.finished

    def by_parent(self) -> dict[str | None, list[RunSummary]]:
        """The runs by the run that delegated to them, in the order in which they began."""
        found: dict[str | None, list[RunSummary]] = {}
        for one in self.runs.values():
            found.setdefault(one.parent, []).append(one)
        return found

    def add_task(self, seq: int, task: Task) -> None:
        """Takes in the task of the root at `seq`: it is queued until it begins. A task says nothing new of a run that
        has begun."""
        if task.run not in self.runs:
            self.runs[task.run] = summary_of_task(task)
            self.changed_runs[task.run] = seq
            self.changed_texts[task.run] = _texts_of(task)

    def apply(self, seq: int, entry: Entry) -> None:
        """Takes in the entry at `seq`; one that was taken in before changes nothing."""
        if entry.run not in self.runs and starts_no_run(entry):
            return
        if seq <= self.last:
            return
        self.last = seq
        summary = self.runs.get(entry.run)
        was_queued = summary is not None and summary.state == "queued"
        if summary is None:
            summary = self.runs[entry.run] = first_summary(entry)
        self.changed_runs[entry.run] = seq
        for event in entry.events:
            apply_event(summary, event, entry.at)
            if not (was_queued and isinstance(event, RunAccepted)):  # its text was noted with its task
                self._note_text(entry.run, event)
        pending = self.pending.get(entry.run, {})
        self._note_decided(decided_in(entry, pending))
        self._update_pending(*pending_changes(entry, pending))
        self._update_waiting(summary)

    def saved(self) -> None:
        """Takes note that all of it was saved."""
        self.changed_runs.clear()
        self.changed_texts.clear()
        self.changed_calls.clear()

    def _note_text(self, run: str, event: msgspec.Struct) -> None:
        before = self.changed_texts.get(run, RunTexts())
        match event:
            case RunAccepted(task=task):
                self.changed_texts[run] = _texts_of(task)
            case RunFinished(output=output) if output is not None:
                shown = for_people(output)
                text = shown if isinstance(shown, str) else msgspec.json.encode(shown).decode()
                self.changed_texts[run] = before._replace(answer=text[:MAX_TEXT_CHARS])

    def _note_decided(self, calls: list[DecidedCall]) -> None:
        if calls:
            known = [*self.decided, *calls]
            self.decided = known[-MAX_DECIDED:]
            self._note_calls([one.asked for one in (*calls, *known[:-MAX_DECIDED])])

    def _update_pending(self, added: list[PendingCall], gone: list[PendingCall]) -> None:
        for call in added:
            self.pending.setdefault(call.run, {})[call.call] = call
            self._count(call, 1)
        for call in gone:
            del self.pending[call.run][call.call]
            if not self.pending[call.run]:
                del self.pending[call.run]
            self._count(call, -1)
        self._note_calls([*added, *gone])

    def _note_calls(self, calls: list[PendingCall]) -> None:
        self.changed_calls |= {key_of(call): self.last for call in calls}

    def _count(self, call: PendingCall, more: int) -> None:
        """Adds `more` to the approvals of the call's run and of all runs above it."""
        run: str | None = call.run
        while run is not None:
            summary = self.runs.get(run)
            if summary is not None:
                summary.approvals += more
                self.changed_runs[run] = self.last
            run = parent_of(run)

    def _update_waiting(self, summary: RunSummary) -> None:
        """Says what the run waits for; called after each of its entries."""
        if not summary.finished and summary.id in self.pending:
            summary.state, summary.waiting_for = "waiting", "approval"
        elif summary.waiting_for == "approval":
            summary.state, summary.waiting_for = "running", None


def _texts_of(task: Task) -> RunTexts:
    return RunTexts(task.task[:MAX_TEXT_CHARS])

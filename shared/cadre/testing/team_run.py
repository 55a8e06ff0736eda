"""A run of a test team: its answer, its events, and what people say to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

import msgspec

from cadre.api.runs import Edited, RunDetail, State
from cadre.client.errors import InvalidRequest, OutputMismatch, RunCancelled, RunFailed, TimedOut
from cadre.client.events import Event
from cadre.engine.budget import gained
from cadre.engine.calls.approval import check_correction
from cadre.engine.calls.call_check import CallNotAllowed
from cadre.engine.fold import fold
from cadre.engine.kind import kind_of
from cadre.errors import CadreError
from cadre.journal import events as ev
from cadre.journal.entry import Entry
from cadre.journal.run import CallState, Phase, Run
from cadre.journal.unions import whole
from cadre.options import Explaining, explained
from cadre.protocol.messages import CallEdit, Cancel, Decision, Edit, MessageMode, Signal, UserMessage
from cadre.protocol.topology import is_within, parent_of, tree_of
from cadre.protocol.usage import Usage
from cadre.structs import made
from cadre.telemetry.tracing.ids import trace_id
from cadre.testing.in_memory_deployment import TeamWorld
from cadre.tools.json_types import as_answer
from cadre.views.run_summary import apply_event, first_summary

Verdict = Literal["approved", "rejected", "corrected"]

ALL = "all"
"""Stands for all calls of a run that wait."""

RUN_HINTS = {
    "status": "state",
    "get": "result()",
    "join": "wait()",
    "ready": "is_over",
    "tool_calls": "team.calls",
    "messages": "team.requests has what the models were asked",
    "approvals": "held",
    "all_messages": "team.requests has what the models were asked",
    "new_messages": "team.requests has what the models were asked",
}
"""Attributes that other libraries' runs have, each with what has the same here."""


class TeamRunWaits(CadreError):
    """The run cannot go further alone: it waits for a person, or for something that will not come."""


@explained(RUN_HINTS)
class TeamRun(metaclass=Explaining):
    """A run of a `Team`, by its id; runs of members are found by `Team.run_ids`."""

    def __init__(self, team: TeamWorld, id: str, agent: str, output_type: Any = None) -> None:
        self._team = team
        self.id = id
        self.agent = agent
        self._output_type = output_type
        self._looked_at = 0
        """Entries that are known to end the run or not."""
        self._has_ended = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.state}>"

    async def wait(self, timeout: float | timedelta | None = None) -> RunDetail:
        """Wait for the end of the run, however it ends.

        While the whole team only waits for a time (a retry, a timeout, a wait of the agent), the clock is moved on to
        it. Raises TimedOut after `timeout` seconds of the team's time: the run goes on. Raises TeamRunWaits when it
        waits for a person, or for something that will never come; and any error that a model raised but must not.
        """
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        until = self._team.now() + seconds if seconds is not None else None
        while not self.is_over:
            if until is not None and self._team.now() >= until:
                raise TimedOut(self.id, seconds or 0.0)
            if self._team.is_idle() and self._team.approves and self.held:
                await self.approve(ALL)
            elif self._team.is_idle():
                self._check_goes_on()
                await self._team.skip_to_next(until)
            else:
                await self._team.changed(until)
        return self.detail()

    async def result(self, output_type: Any = None, *, timeout: float | timedelta | None = None) -> Any:
        """Wait as `wait` does and return the answer, as an `output_type` or the type that the run was started with;
        also that of a run that used up its steps.

        Raises RunFailed for a run that ended otherwise, RunCancelled for one that was cancelled, OutputMismatch for an
        answer of another form.
        """
        found = await self.wait(timeout)
        if found.state not in ("success", "max_steps_error"):
            raise (RunCancelled if found.state == "cancelled" else RunFailed)(found)
        return self._typed(found.output, self._output_type if output_type is None else output_type)

    async def settle(self) -> None:
        """Wait until the run is over, or the team only waits for a time or for a person outside."""
        while not self.is_over and not self._team.is_idle():
            await self._team.changed()

    async def stream(self, *, after: int = 0) -> AsyncGenerator[Event, None]:
        """Yield the events of the run and of all runs below it behind `after`, the `seq` of an earlier one, from its
        beginning until `end`, as a client of the gateway does; pieces of answers (`delta`) are left out.

        Raises as `wait`.
        """
        while True:
            entries = [(seq, one) for seq, one in self._team.stored() if is_within(one.run, self.id)]
            for seq, entry in entries:
                if seq > after:
                    after = seq
                    for event in entry.events:
                        yield _shown(seq, entry, event)
            if self.is_over:
                yield Event("end", {"run": self.id, "state": self.state})
                return
            if self._team.is_idle() and self._team.approves and self.held:
                await self.approve(ALL)
            elif self._team.is_idle():
                self._check_goes_on()
                await self._team.skip_to_next()
            else:
                await self._team.changed()

    @property
    def state(self) -> State:
        """The state as the gateway names it: `queued`, `running`, `waiting`, `success`, `error` …"""
        state = _state_of(self._team.journal(self.id))
        return "waiting" if state == "running" and self.held else state

    @property
    def run(self) -> Run:
        """The run as it follows from its journal: `phase`, `steps`, `usage`, `result` …"""
        return fold(self._team.journal(self.id), self.id, tree_of(self.id))

    @property
    def output(self) -> Any:
        """The answer, as the type that the run was started with; None before its end."""
        result = self.run.result
        return self._typed(result.output, self._output_type) if result is not None else None

    @property
    def usage(self) -> Usage:
        """Return what the run and all runs below it have used so far."""
        return self.run.usage

    @property
    def is_over(self) -> bool:
        """Return whether it has ended. Asked at every change, so it reads no entry twice."""
        fresh = self._team.journal(self.id, self._looked_at)
        self._looked_at += len(fresh)
        self._has_ended |= any(isinstance(event, ev.RunFinished) for one in fresh for event in one.events)
        return self._has_ended

    @property
    def events(self) -> list[ev.AnyEvent]:
        """The events of the run's journal so far."""
        return [event for entry in self._team.journal(self.id) for event in entry.events]

    @property
    def files(self) -> dict[str, bytes]:
        """The files in the workspace of its tree, by path."""
        return self._team.files(self.id)

    @property
    def held(self) -> list[CallState]:
        """Calls of this run and of those below it that wait for a person."""
        return [call for run in self._active() for call in run.open_calls() if call.hold is not None]

    # --- what people say

    async def approve(
        self,
        call: str = "",
        *,
        edits: Sequence[CallEdit | Mapping[str, Any]] = (),
        know: Sequence[str] = (),
        feedback: str = "",
        by: str = "test",
    ) -> None:
        """Let a call be made, with "all" every call that waits, or the calls that a question proposes, as `edits`
        change, drop and add them. `know`: arguments whose values policies know from here on.

        `call` may be left out when only one is held.
        """
        verdict: Verdict = "corrected" if edits else "approved"
        given = [made(CallEdit, one) if isinstance(one, Mapping) else one for one in edits]
        for one in await self._calls(call):
            await self._decide(verdict, one, feedback, by, edits=given, know=[*know])

    async def reject(self, call: str = "", *, feedback: str = "", by: str = "test") -> None:
        """Turn down a call, or with "all" every call that waits; the model reads the feedback."""
        for one in await self._calls(call):
            await self._decide("rejected", one, feedback, by)

    async def correct(
        self,
        call: str = "",
        arguments: Mapping[str, Any] | None = None,
        *,
        tool: str | None = None,
        replace: bool = False,
        feedback: str = "",
        by: str = "test",
    ) -> None:
        """Have a call made with these arguments in place of those of the same names, or another tool called.

        `replace`: these are all arguments. Raises InvalidRequest for arguments that the tool does not take.
        """
        (one,) = await self._calls(call)
        run, held = self._held_call(one)
        merges = not replace and tool in (None, held.name) and held.pause is None
        given = None if arguments is None else {**(held.arguments if merges else {}), **arguments}
        if held.pause is None:
            try:
                check_correction(run, held, tool, given)
            except CallNotAllowed as error:
                raise InvalidRequest(str(error), 422, "invalid-request") from error
        await self._decide("corrected", one, feedback, by, tool=tool, arguments=given)

    async def answer(self, text: str, call: str = "") -> None:
        """Answer a question of the agent."""
        (one,) = await self._calls(call)
        await self._decide("approved", one, text, "test")

    async def cancel(self, reason: str = "") -> None:
        """Cancel the run and all below it."""
        await self._team.send(Cancel(**self._head("cancelled"), reason=reason), self.agent)

    async def tell(self, text: str, *, mode: MessageMode = "append") -> None:
        """Say something to the run, which its model reads with the next call; see AsyncRunHandle.tell."""
        await self._team.send(UserMessage(**self._head("message"), text=text, mode=mode), self.agent)

    async def signal(self, name: str, payload: Any = None) -> None:
        """Send the run a signal that it waits for, or will wait for; `payload` is any JSON value."""
        await self._team.send(Signal(**self._head("signal"), name=name, payload=payload), self.agent)

    @property
    def has_editable(self) -> bool:
        """Return whether there is something that `editable` returns, by now."""
        run = self.run
        return run.spec is not None and kind_of(run).editable(run) is not None

    def editable(self) -> Edited:
        """Return what a person may edit of the run, its queue or its plan, and its version. Raises TeamRunWaits for
        none.
        """
        run = self.run
        found = kind_of(run).editable(run) if run.spec is not None else None
        if found is None:
            raise TeamRunWaits(f"run {self.id} has nothing that can be edited")
        return Edited(run=self.id, name=found.name, version=found.version, state=found.state)

    async def edit(self, what: Edited, operations: Sequence[dict[str, Any]]) -> None:
        """Edit what `editable` has returned; an edit that comes too late is refused, which the run's events tell."""
        record = Edit(**self._head("edit"), base=what.version, operations=list(operations))
        await self._team.send(record, self.agent)

    def detail(self) -> RunDetail:
        """The run as a gateway would show it; the runs below it are left out."""
        entries = self._team.journal(self.id)
        run = fold(entries, self.id, tree_of(self.id))
        events = [event for entry in entries for event in entry.events]
        task, result = run.task, run.result
        return RunDetail(
            id=run.id,
            tree=run.tree,
            trace=trace_id(run.tree),
            parent=run.parent,
            agent=self.agent,
            task=task.task if task is not None else "",
            state=result.state if result is not None else self.state,
            step=run.step,
            started_at=run.started_at,
            ended_at=result.at if result is not None else None,
            usage=run.usage,
            session=task.session if task is not None else None,
            error=result.error if result is not None else None,
            output=result.output if result is not None else None,
            deadline_at=run.deadline,
            budget=run.budget,
            own_usage=gained([event for event in events if not isinstance(event, ev.DelegateFinished)]),
            children=[],
        )

    def _check_goes_on(self) -> None:
        """Raise TeamRunWaits for a run of an idle team that nothing but a person could take further."""
        self._team.check()
        if held := self.held:
            names = ", ".join(f"{call.id} ({call.name})" for call in held)
            raise TeamRunWaits(
                f"run {self.id} waits for a person to decide on {names}: use approve, reject, correct or answer"
            )
        if self._team.next_in() is None:
            run = self.run
            raise TeamRunWaits(
                f"run {self.id} is {run.phase.value} and waits for what no one sends:"
                f" {', '.join(call.name for call in run.open_calls()) or 'see its events'}"
            )

    def _typed(self, output: Any, output_type: Any) -> Any:
        if output_type is None:
            return output
        try:
            return as_answer(output, output_type)
        except ValueError as error:
            raise OutputMismatch(self.id, output, str(error)) from error

    def _head(self, what: str) -> dict[str, Any]:
        """Fields of a record to this run."""
        return {
            "id": f"{self.id}:{what}:{self._team.next_number()}",
            "tree": tree_of(self.id),
            "run": self.id,
            "at": self._team.now(),
            "sender": "test",
        }

    async def _calls(self, call: str) -> list[str]:
        """Return the ids of the calls that are meant. Raises TeamRunWaits where no such call is held."""
        await self.settle()
        held = [one.id for one in self.held]
        if call == ALL:
            return held
        if not call and len(held) == 1:
            return held
        if call not in held:
            raise TeamRunWaits(f"no call {call!r} waits for a person; those that do: {', '.join(held) or 'none'}")
        return [call]

    def _held_call(self, call: str) -> tuple[Run, CallState]:
        return next(
            (run, one) for run in self._active() for one in run.open_calls() if one.hold is not None and one.id == call
        )

    async def _decide(self, verdict: Verdict, call: str, feedback: str, by: str, **fields: Any) -> None:
        run, _ = self._held_call(call)
        decision = Decision(
            id=f"{call}:decision:{self._team.next_number()}",
            tree=run.tree,
            run=run.id,
            at=self._team.now(),
            call=call,
            verdict=verdict,
            feedback=feedback,
            sender=by,
            **fields,
        )
        await self._team.send(decision, run.agent)

    def _active(self) -> list[Run]:
        """The runs of its tree that are not over."""
        ids = [id_ for id_ in self._team.run_ids() if is_within(id_, self.id)]
        runs = [fold(self._team.journal(id_), id_, tree_of(id_)) for id_ in ids]
        return [run for run in runs if run.phase is not Phase.DONE]


def _state_of(entries: Sequence[Entry]) -> State:
    if not entries:
        return "queued"
    summary = first_summary(entries[0])
    for entry in entries:
        for event in entry.events:
            apply_event(summary, event, entry.at)
    return summary.state


def _shown(seq: int, entry: Entry, event: ev.AnyEvent) -> Event:
    """Return an event as the gateway's stream has it."""
    said: dict[str, Any] = msgspec.to_builtins(whole(event))
    data = {
        "seq": seq,
        "n": entry.n,
        "run": entry.run,
        "parent": parent_of(entry.run),
        "agent": entry.agent,
        "at": entry.at,
        "event": said,
    }
    return Event(str(said["type"]), data)

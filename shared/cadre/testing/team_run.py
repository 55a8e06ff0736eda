"""A run of a test team: its answer, its events, and what people say to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from cadre.api.runs import Edited, RunDetail
from cadre.client.errors import RunCancelled, RunFailed
from cadre.engine.budget import gained
from cadre.engine.fold import fold
from cadre.engine.kind import kind_of
from cadre.errors import CadreError
from cadre.journal import events as ev
from cadre.journal.run import Phase, Run
from cadre.journal.steps import CallState
from cadre.protocol.messages import CallEdit, Cancel, Decision, Edit, MessageMode, Signal, UserMessage
from cadre.protocol.topology import is_within, tree_of
from cadre.telemetry.tracing.ids import trace_id
from cadre.testing.team_world import TeamWorld

Verdict = Literal["approved", "rejected", "corrected"]


class TeamRunWaits(CadreError):
    """The run goes no further by itself: it waits for a person, or for what nobody will send."""


class TeamRun:
    """A run of a `Team`, by its id; runs of members are found by `Team.run_ids`."""

    def __init__(self, team: TeamWorld, id: str, agent: str) -> None:
        self._team = team
        self.id = id
        self.agent = agent
        self._looked_at = 0
        """Entries that are known to end the run or not."""
        self._has_ended = False

    async def result(self) -> Any:
        """Waits for the end of the run and returns its answer; also that of a run that used up its steps.

        While the whole team only waits for a time (a retry, a timeout, a wait of the agent), the clock is moved on to
        it. Raises RunFailed for a run that ended otherwise, RunCancelled for one that was cancelled; TeamRunWaits
        when it waits for a person, or for something that will never come; and whatever a model raised that none may.
        """
        while not self.is_over:
            if self._team.is_idle():
                if held := self.held:
                    names = ", ".join(f"{call.id} ({call.name})" for call in held)
                    raise TeamRunWaits(
                        f"run {self.id} waits for a person to decide on {names}: use approve, reject, correct or answer"
                    )
                if not self._team.skip_to_next():
                    raise TeamRunWaits(
                        f"run {self.id} is {self.state.phase.value} and waits for what nobody sends:"
                        f" {', '.join(call.name for call in self.state.open_calls()) or 'see its events'}"
                    )
            await self._team.changed()
        result = self.state.result
        assert result is not None
        if result.state not in ("success", "max_steps_error"):
            raise (RunCancelled if result.state == "cancelled" else RunFailed)(self._detail())
        return result.output

    async def settle(self) -> None:
        """Waits until the run is over, or the team only waits for a time or for somebody outside."""
        while not self.is_over and not self._team.is_idle():
            await self._team.changed()

    @property
    def state(self) -> Run:
        """The run's state, folded from its journal: `phase`, `steps`, `usage`, `result` …"""
        return fold(self._team.journal(self.id), self.id, tree_of(self.id))

    @property
    def is_over(self) -> bool:
        """Whether it has ended. Asked at every change, so it reads no entry twice."""
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

    async def approve(self, call: str = "", *, edits: Sequence[CallEdit] = (), note: str = "") -> None:
        """Lets a call be made, or the calls that a question proposes, as `edits` change, drop and add them.

        `call` may be left out when only one is held.
        """
        await self._decide("corrected" if edits else "approved", call, note, edits=[*edits])

    async def reject(self, call: str = "", *, note: str = "") -> None:
        """Refuses a call; the model reads the note."""
        await self._decide("rejected", call, note)

    async def correct(
        self, call: str = "", *, tool: str | None = None, note: str = "", **arguments: Any
    ) -> None:
        """Has a call made with these arguments in place of the model's, or another tool in its place."""
        await self._decide("corrected", call, note, tool=tool, arguments=arguments)

    async def answer(self, text: str, call: str = "") -> None:
        """Answers a question of the agent."""
        await self._decide("approved", call, text)

    async def cancel(self, reason: str = "") -> None:
        """Cancels the run and all below it."""
        await self._team.send(Cancel(**self._head("cancelled"), reason=reason), self.agent)

    async def tell(self, text: str, *, mode: MessageMode = "append") -> None:
        """Says something to the run, which its model reads with the next call; see AsyncRunHandle.tell."""
        await self._team.send(UserMessage(**self._head("message"), text=text, mode=mode), self.agent)

    async def signal(self, name: str, payload: Any = None) -> None:
        """Sends the run a signal that it waits for, or will wait for; `payload` is any JSON value."""
        await self._team.send(Signal(**self._head("signal"), name=name, payload=payload), self.agent)

    @property
    def has_editable(self) -> bool:
        """Whether there is something that `editable` returns, by now."""
        state = self.state
        return state.spec is not None and kind_of(state).editable(state) is not None

    def editable(self) -> Edited:
        """What a person may edit of the run, its queue or its plan, and its version. Raises TeamRunWaits for none."""
        state = self.state
        found = kind_of(state).editable(state) if state.spec is not None else None
        if found is None:
            raise TeamRunWaits(f"run {self.id} has nothing that can be edited")
        return Edited(run=self.id, name=found.name, version=found.version, state=found.state)

    async def edit(self, what: Edited, operations: Sequence[dict[str, Any]]) -> None:
        """Edits what `editable` has returned; an edit that comes too late is refused, which the run's events tell."""
        record = Edit(**self._head("edit"), base=what.version, operations=list(operations))
        await self._team.send(record, self.agent)

    def _head(self, what: str) -> dict[str, Any]:
        """Fields of a record to this run."""
        return {
            "id": f"{self.id}:{what}:{self._team.next_number()}",
            "tree": tree_of(self.id),
            "run": self.id,
            "at": self._team.now(),
            "sender": "test",
        }

    async def _decide(self, verdict: Verdict, call: str, note: str, **fields: Any) -> None:
        await self.settle()
        held = {one.id: run for run in self._active() for one in run.open_calls() if one.hold is not None}
        if not call and len(held) == 1:
            call = next(iter(held))
        if call not in held:
            waiting = ", ".join(held) or "none"
            raise TeamRunWaits(f"no call {call!r} waits for a person; those that do: {waiting}")
        run = held[call]
        decision = Decision(
            id=f"{call}:decision:{self._team.next_number()}",
            tree=run.tree,
            run=run.id,
            at=self._team.now(),
            call=call,
            verdict=verdict,
            feedback=note,
            sender="test",
            **fields,
        )
        await self._team.send(decision, run.agent)

    def _detail(self) -> RunDetail:
        """The run as a gateway would show it; the runs below it are left out."""
        run, result = self.state, self.state.result
        assert result is not None
        return RunDetail(
            id=run.id,
            tree=run.tree,
            trace=trace_id(run.tree),
            parent=run.parent,
            agent=run.agent,
            task=run.task.task if run.task is not None else "",
            state=result.state,
            step=run.step,
            started_at=run.started_at,
            ended_at=result.at,
            usage=run.usage,
            session=run.task.session if run.task is not None else None,
            error=result.error,
            output=result.output,
            deadline_at=run.deadline,
            budget=run.budget,
            own_usage=gained([event for event in self.events if not isinstance(event, ev.DelegateFinished)]),
            children=[],
        )

    def _active(self) -> list[Run]:
        """The runs of its tree that are not over."""
        ids = [id_ for id_ in self._team.run_ids() if is_within(id_, self.id)]
        runs = [fold(self._team.journal(id_), id_, tree_of(id_)) for id_ in ids]
        return [run for run in runs if run.phase is not Phase.DONE]

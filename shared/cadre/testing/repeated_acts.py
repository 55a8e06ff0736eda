"""Repeat what people said to a kept run, or edited of it or of runs below, on the run that is tried."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Sequence

import msgspec

from cadre.engine.model_request import ModelRequest
from cadre.errors import CadreError
from cadre.journal import events as ev
from cadre.ports import Model, ModelReply, OnText
from cadre.testing.kept_run import Act, Below, KeptAct, delegations, reached
from cadre.testing.team import Team
from cadre.testing.team_run import TeamRun


class NotDoneAgain(CadreError):
    """A person's act on a run cannot be repeated now: the outcome would be no comparison."""

    def __init__(self, kept: KeptAct, why: str) -> None:
        act, member = kept.act, kept.below[-1].member if kept.below else ""
        if isinstance(act, ev.MessageReceived):
            to = f" to {member}" if member else ""
            what = f"said {act.text[:200]!r}{to} then, which could not be said again"
        else:
            of = f" the work of {member}" if member else ""
            what = f"edited{of} then {msgspec.json.encode(act.operations).decode()}, which cannot be done now"
        super().__init__(f"{act.sender or 'somebody'} {what}: {why}")


class RepeatedActs:
    """The acts that are still to be done, to each run in their order."""

    def __init__(self, acts: Sequence[KeptAct]) -> None:
        self._left = defaultdict[Below, deque[KeptAct]](deque)
        for one in acts:
            self._left[one.below].append(one)
        self._began: tuple[Team, TeamRun] | None = None
        self._done = asyncio.Event()

    def begin(self, team: Team, run: TeamRun) -> None:
        """From now on they are done to this run, and to those below it."""
        self._began = team, run

    @property
    def is_due(self) -> bool:
        """Return whether one of the runs is as far as that of then was at its next one."""
        return self._due() is not None

    async def turn(self) -> None:
        """Wait while one is due: the answer of a model or a tool would carry the run past it."""
        while self._began is not None and self.is_due:
            # The process that waits here has not come to rest, so the team is not notified.
            self._began[0].note_change()
            await self._done.wait()

    async def do_next(self) -> None:
        """Do the next one that is due. Raises NotDoneAgain."""
        if self._began is None or (due := self._due()) is None:
            return
        run, kept = due
        while not await _is_done(self._began[0], run, kept):
            pass
        self._left[kept.below].popleft()
        self._done.set()
        self._done = asyncio.Event()

    def check_all_done(self) -> None:
        """Raise NotDoneAgain where the run came to an answer without one of them."""
        if self._began is None:
            return
        team, root = self._began
        result = root.run.result
        left = next((acts[0] for acts in self._left.values() if acts), None)
        if left is not None and result is not None and result.state == "success":
            is_begun = run_at(team, root, left.below) is not None
            why = "the run came to its answer before" if is_begun else "it was not given that work"
            raise NotDoneAgain(left, why)

    def _due(self) -> tuple[TeamRun, KeptAct] | None:
        if self._began is None:
            return None
        for below, acts in self._left.items():
            run = run_at(*self._began, below) if acts else None
            if run is not None and _is_as_far(run, acts[0]):
                return run, acts[0]
        return None


def run_at(team: Team, run: TeamRun, below: Below) -> TeamRun | None:
    """Return the run at the end of this way; None as long as it has not begun."""
    for one in below:
        call = delegations(run.events).get(one)
        if call is None:
            return None
        run = TeamRun(team, call, one.member)
    return run


def _is_as_far(run: TeamRun, kept: KeptAct) -> bool:
    events = run.events
    can_take = bool(events) if isinstance(kept.act, ev.MessageReceived) else run.has_editable
    return can_take and reached(events) >= kept.after


class ModelInTurn:
    """ports.Model whose answers wait their turn."""

    def __init__(self, model: Model, acts: RepeatedActs) -> None:
        self._model, self._acts = model, acts

    async def complete(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        reply = await self._model.complete(request, on_text)
        await self._acts.turn()
        return reply


async def _is_done(team: Team, run: TeamRun, kept: KeptAct) -> bool:
    """Return whether the run has taken it; not when what was to be edited has changed meanwhile. Raises
    NotDoneAgain.
    """
    before, act = len(_taken(run)), kept.act
    if isinstance(act, ev.MessageReceived):
        await run.tell(act.text, mode=act.mode)
    else:
        await run.edit(there := run.editable(), act.operations)
    while len(_taken(run)) == before and not run.is_over:
        await team.changed()
    match _taken(run)[before:]:
        case [ev.EditRefused(version=version, reason=reason), *_]:
            if version in (None, there.version):
                raise NotDoneAgain(kept, reason)
            return False
        case []:
            raise NotDoneAgain(kept, "the run has ended")
        case _:
            return True


def _taken(run: TeamRun) -> list[ev.AnyEvent]:
    return [event for event in run.events if isinstance(event, Act | ev.EditRefused)]

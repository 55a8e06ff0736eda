"""What people said to a kept run and edited of it, done again to the run that is tried, once it is as far."""

import asyncio
from collections import deque
from collections.abc import Sequence

import msgspec

from cadre.engine.model_request import ModelRequest
from cadre.errors import CadreError
from cadre.journal import events as ev
from cadre.ports import Model, ModelReply, OnText
from cadre.testing.kept_run import Act, Reached, reached
from cadre.testing.team import Team
from cadre.testing.team_run import TeamRun


class NotDoneAgain(CadreError):
    """What a person did to a run cannot be done to it now: what would come of it is no comparison."""

    def __init__(self, act: Act, why: str) -> None:
        if isinstance(act, ev.MessageReceived):
            what = f"said {act.text[:200]!r} then, which could not be said again"
        else:
            what = f"edited then {msgspec.json.encode(act.operations).decode()}, which cannot be done now"
        super().__init__(f"{act.sender or 'somebody'} {what}: {why}")


class RepeatedActs:
    """The acts that are still to be done, in their order."""

    def __init__(self, acts: Sequence[tuple[Reached, Act]]) -> None:
        self._left = deque(acts)
        self._run: TeamRun | None = None
        self._done = asyncio.Event()

    def begin(self, run: TeamRun) -> None:
        """From now on they are done to this run."""
        self._run = run

    @property
    def is_due(self) -> bool:
        """Whether the run is as far as that of then was at the next one."""
        if self._run is None or not self._left:
            return False
        after, act = self._left[0]
        is_there = isinstance(act, ev.MessageReceived) or self._run.has_editable
        return is_there and reached(self._run.events) >= after

    async def turn(self) -> None:
        """Waits while one is due: the answer of a model or a tool would carry the run past it."""
        while self.is_due:
            await self._done.wait()

    async def do_next(self, team: Team, run: TeamRun) -> None:
        """Does the next one. Raises NotDoneAgain."""
        act = self._left[0][1]
        while not await _is_done(team, run, act):
            pass
        self._left.popleft()
        self._done.set()
        self._done = asyncio.Event()

    def check_all_done(self, run: TeamRun) -> None:
        """Raises NotDoneAgain for a run that came to an answer without one of them."""
        result = run.state.result
        if self._left and result is not None and result.state == "success":
            raise NotDoneAgain(self._left[0][1], "the run came to its answer before")


class ModelInTurn:
    """ports.Model whose answers wait their turn."""

    def __init__(self, model: Model, acts: RepeatedActs) -> None:
        self._model, self._acts = model, acts

    async def complete(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        reply = await self._model.complete(request, on_text)
        await self._acts.turn()
        return reply


async def _is_done(team: Team, run: TeamRun, act: Act) -> bool:
    """Whether the run has taken it; not when what was to be edited has changed meanwhile. Raises NotDoneAgain."""
    before = len(_taken(run))
    if isinstance(act, ev.MessageReceived):
        await run.tell(act.text, mode=act.mode)
    else:
        await run.edit(there := run.editable(), act.operations)
    while len(_taken(run)) == before and not run.is_over:
        await team.changed()
    match _taken(run)[before:]:
        case [ev.EditRefused(version=version, reason=reason), *_]:
            if version in (None, there.version):
                raise NotDoneAgain(act, reason)
            return False
        case []:
            raise NotDoneAgain(act, "the run has ended")
        case _:
            return True


def _taken(run: TeamRun) -> list[ev.AnyEvent]:
    return [event for event in run.events if isinstance(event, Act | ev.EditRefused)]

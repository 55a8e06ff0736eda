"""A test team and its runs for programs without an event loop: their methods block."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Self, Unpack

from cadre.api.runs import State
from cadre.client.blocking import Blocking, Mirrored, blocking, blocking_iterator, plain
from cadre.client.events import Event
from cadre.client.run_options import StartOptions
from cadre.journal import events as ev
from cadre.journal.run import CallState, Run
from cadre.options import explained
from cadre.protocol.usage import Usage
from cadre.testing.in_memory_deployment import ModelAsked
from cadre.testing.in_memory_streams import GivenUp
from cadre.testing.team import HINTS, Team, TeamCall
from cadre.testing.team_run import RUN_HINTS, TeamRun


@explained(RUN_HINTS)
class BlockingTeamRun(Blocking[TeamRun]):
    """A TeamRun whose methods wait."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.state}>"

    def __iter__(self) -> Iterator[Event]:
        return self.stream()

    wait = blocking(TeamRun.wait)
    result = blocking(TeamRun.result)
    settle = blocking(TeamRun.settle)
    stream = blocking_iterator(TeamRun.stream)
    approve = blocking(TeamRun.approve)
    reject = blocking(TeamRun.reject)
    correct = blocking(TeamRun.correct)
    answer = blocking(TeamRun.answer)
    cancel = blocking(TeamRun.cancel)
    tell = blocking(TeamRun.tell)
    signal = blocking(TeamRun.signal)
    edit = blocking(TeamRun.edit)

    id: Mirrored[str] = Mirrored(TeamRun)
    agent: Mirrored[str] = Mirrored(TeamRun)
    state: Mirrored[State] = Mirrored(TeamRun)
    run: Mirrored[Run] = Mirrored(TeamRun)
    output: Mirrored[Any] = Mirrored(TeamRun)
    usage: Mirrored[Usage] = Mirrored(TeamRun)
    is_over: Mirrored[bool] = Mirrored(TeamRun)
    events: Mirrored[list[ev.AnyEvent]] = Mirrored(TeamRun)
    files: Mirrored[dict[str, bytes]] = Mirrored(TeamRun)
    held: Mirrored[list[CallState]] = Mirrored(TeamRun)
    has_editable: Mirrored[bool] = Mirrored(TeamRun)
    editable = plain(TeamRun.editable)


@explained(HINTS)
class BlockingTeam(Blocking[Team]):
    """The value of `with Team(…) as team`: a Team whose methods wait. Raises RuntimeError where an event loop runs."""

    def open(self) -> Self:
        """Start the team's processes."""
        self._wait(self._target.__aenter__())
        return self

    def close(self) -> None:
        """End the team's processes."""
        self._wait(self._target.__aexit__(None, None, None))
        self._loop.close()

    def run(
        self,
        agent: str,
        task: str,
        *,
        output_type: Any = None,
        timeout: float | timedelta | None = None,
        **options: Unpack[StartOptions],
    ) -> Any:
        """As Team.run."""
        run = self.start(agent, task, output_type=output_type, **options)
        return run.result(timeout=timeout)

    def start(
        self, agent: str, task: str, *, output_type: Any = None, **options: Unpack[StartOptions]
    ) -> BlockingTeamRun:
        """As Team.start."""
        run = self._wait(self._target.start(agent, task, output_type=output_type, **options))
        return BlockingTeamRun(run, self._loop)

    def attach(self, run: str) -> BlockingTeamRun:
        """A run of the team, such as one of a member, by an id of `run_ids`."""
        return BlockingTeamRun(self._target.attach(run), self._loop)

    def skip(self, seconds: float) -> None:
        """As Team.skip."""

        async def skip() -> None:
            self._target.skip(seconds)

        self._wait(skip())

    def kill(self, process: str) -> None:
        """As Team.kill."""

        async def kill() -> None:
            self._target.kill(process)

        self._wait(kill())

    crash_after = plain(Team.crash_after)
    crash_before = plain(Team.crash_before)
    run_ids = plain(Team.run_ids)
    leftovers = plain(Team.leftovers)
    now = plain(Team.now)

    calls: Mirrored[list[TeamCall]] = Mirrored(Team)
    requests: Mirrored[list[ModelAsked]] = Mirrored(Team)
    dead_letters: Mirrored[list[GivenUp]] = Mirrored(Team)
    stores: Mirrored[int] = Mirrored(Team)
    kills: Mirrored[list[str]] = Mirrored(Team)

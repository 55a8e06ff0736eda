"""A test team and its runs for programs without an event loop: their methods block."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Self, Unpack

from cadre.api.runs import Edited, State
from cadre.client.blocking import Blocking, blocking, blocking_iterator
from cadre.client.events import Event
from cadre.client.run_options import StartOptions
from cadre.journal import events as ev
from cadre.journal.run import Run
from cadre.journal.steps import CallState
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

    @property
    def id(self) -> str:
        """Id of the run."""
        return self._target.id

    @property
    def agent(self) -> str:
        """Name of its agent."""
        return self._target.agent

    @property
    def state(self) -> State:
        """As TeamRun.state."""
        return self._target.state

    @property
    def run(self) -> Run:
        """As TeamRun.run."""
        return self._target.run

    @property
    def output(self) -> Any:
        """As TeamRun.output."""
        return self._target.output

    @property
    def usage(self) -> Usage:
        """As TeamRun.usage."""
        return self._target.usage

    @property
    def is_over(self) -> bool:
        """Return whether it has ended."""
        return self._target.is_over

    @property
    def events(self) -> list[ev.AnyEvent]:
        """The events of the run's journal so far."""
        return self._target.events

    @property
    def files(self) -> dict[str, bytes]:
        """The files in the workspace of its tree, by path."""
        return self._target.files

    @property
    def held(self) -> list[CallState]:
        """As TeamRun.held."""
        return self._target.held

    @property
    def has_editable(self) -> bool:
        """As TeamRun.has_editable."""
        return self._target.has_editable

    def editable(self) -> Edited:
        """As TeamRun.editable."""
        return self._target.editable()


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

    def crash_after(self, stores: int, process: str = "") -> None:
        """As Team.crash_after."""
        self._target.crash_after(stores, process)

    def crash_before(self, stores: int, process: str = "") -> None:
        """As Team.crash_before."""
        self._target.crash_before(stores, process)

    def run_ids(self) -> list[str]:
        """As Team.run_ids."""
        return self._target.run_ids()

    def leftovers(self) -> list[str]:
        """As Team.leftovers."""
        return self._target.leftovers()

    def now(self) -> float:
        """The team's time in Unix seconds."""
        return self._target.now()

    @property
    def calls(self) -> list[TeamCall]:
        """As Team.calls."""
        return self._target.calls

    @property
    def requests(self) -> list[ModelAsked]:
        """As Team.requests."""
        return self._target.requests

    @property
    def dead_letters(self) -> list[GivenUp]:
        """Messages that were given up."""
        return self._target.dead_letters

    @property
    def stores(self) -> int:
        """As Team.stores."""
        return self._target.stores

    @property
    def kills(self) -> list[str]:
        """As Team.kills."""
        return self._target.kills

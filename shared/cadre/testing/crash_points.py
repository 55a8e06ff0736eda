"""Plays a scenario again and again, each time with a process killed behind another one of the records it stores."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

from cadre.testing.team import Team


class CrashOutcome(NamedTuple):
    """What came of a scenario in which a process was killed."""

    after: int
    """The number of the record behind which, or before which, it died; 0 for the play without a death."""
    killed: str
    """The process, by its name."""
    value: Any
    """What the scenario returned."""
    team: Team
    """The team at its end, to be asserted on."""


async def crash_points(
    make: Callable[[], Team], play: Callable[[Team], Awaitable[Any]], *, before: bool = False
) -> AsyncIterator[CrashOutcome]:
    """Yields the outcome of `play` on a new team undisturbed, then one for each record that a process of it stored.

    async for outcome in crash_points(make_team, lambda team: team.run("clerk", "Pay the bill.")):
        assert outcome.value == "paid"
        assert len(paid) == 1

    With `before`, a process dies before each of the records instead of behind it.
    """
    async with make() as team:
        value = await play(team)
        records = team.stores
        yield CrashOutcome(0, "", value, team)
    for after in range(1, records + 1):
        async with make() as team:
            (team.crash_before if before else team.crash_after)(after)
            value = await play(team)
            yield CrashOutcome(after, ", ".join(team.kills), value, team)

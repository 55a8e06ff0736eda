"""Compare the tools of a kept run: as it was offered them, and as they are offered now."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from cadre.engine.calls.call_check import CallNotAllowed, check_arguments
from cadre.journal import events as ev
from cadre.loop.rebase import TeamFiles, tools_of_now, toolsets_of
from cadre.loop.redecide import Journaled, differences, plain
from cadre.protocol.cards import ToolCard


class ToolChange(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that is not offered as it was."""

    run: str
    tool: str
    change: Literal["gone", "new", "changed"]
    lines: list[str]
    """The differences in what it says of itself."""
    calls: int
    """The number of times that the run has called it."""
    refused: dict[str, str]
    """By their ids, those of its calls that could not be made now, and why."""


def tool_changes(journal: Sequence[Journaled], team: TeamFiles) -> list[ToolChange]:
    """The tools of a run that the team does not toolset as they were when it was last offered them.

    The functions of the run's caller are the caller's own. Raises CannotRebase.
    """
    now, was = tools_of_now(journal, team), _tools_of_then(journal)
    calls = [event for _, entry in journal for event in entry.events if isinstance(event, ev.ToolCalled)]
    found = []
    for name in sorted({*was, *now}):
        of_it = [call for call in calls if call.tool == name]
        stays = name in was and name in now
        lines = differences(plain(was[name].decisive), plain(now[name].decisive)) if stays else []
        if stays and not lines:
            continue
        found.append(
            ToolChange(
                run=journal[0].entry.run,
                tool=name,
                change="changed" if stays else "new" if name in now else "gone",
                lines=lines,
                calls=len(of_it),
                refused=dict(_refused(of_it, now)),
            )
        )
    return found


def _tools_of_then(journal: Sequence[Journaled]) -> dict[str, ToolCard]:
    accepted = [event for event in journal[0].entry.events if isinstance(event, ev.RunAccepted)]
    own = {tool.name for event in accepted for tool in event.task.terms.tools}
    cards = [card for toolset in toolsets_of(journal) for card in toolset.tools]
    return {card.name: card for card in cards if card.name not in own}


def _refused(calls: Sequence[ev.ToolCalled], now: Mapping[str, ToolCard]) -> list[tuple[str, str]]:
    found = []
    for call in calls:
        if call.tool not in now:
            found.append((call.call, f"nobody offers {call.tool!r}"))
            continue
        try:
            check_arguments(call.tool, now[call.tool].input_schema, call.arguments)
        except CallNotAllowed as why:
            found.append((call.call, str(why)))
    return found

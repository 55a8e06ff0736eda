"""A kept run as it would go with what its agent's files say now: the same arrivals, another specification.

What the models, tools, members and people of the run answered stays as it is; `redecide` then reports which decisions
would be others.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from cadre.engine.parts import spec_of
from cadre.engine.toolset import card_of, toolset_of
from cadre.errors import SpecError
from cadre.journal import events as ev
from cadre.journal.arrivals import Toolset
from cadre.journal.entry import Entry
from cadre.journal.events import AnyEvent
from cadre.loop.arrival_of import arrival_of
from cadre.loop.redecide import Journaled, Retraced
from cadre.protocol.cards import AgentCard, Presence, ToolCard
from cadre.spec.agent import AgentSpec
from cadre.spec.kinds import decided_by

_OF_THE_FILES = 1.0
"""The start of what the files toolset: later than that of what the run was offered, so that it counts."""


_OF_THE_SERVICE = (ev.RunAccepted, ev.ToolsetChanged)


class TeamFiles(NamedTuple):
    """A team as its files say it now."""

    agents: dict[str, AgentSpec]
    tools: list[ToolCard]
    """Those that can be known without starting anything; others are as the run was offered them."""
    has_all_tools: bool = False
    """True if no other tools exist: a tool that is not among them is not offered."""


class CannotRebase(Exception):
    """The files say nothing about the run; the text says why."""


def rebase(journal: Sequence[Journaled], team: TeamFiles) -> list[Journaled]:
    """The whole journal of a run with the spec and the toolset of the files. Raises CannotRebase.

    The run keeps the kind's version that it began with. Snapshots are left out: they hold the earlier spec.
    """
    first = journal[0].entry
    accepted, spec = _begun(journal, team)
    changes = toolsets_of(journal)
    toolset = _toolset(spec, team, changes, [])
    retraced, rebased = Retraced(first.run, first.tree), list[Journaled]()
    for seq, entry in journal:
        if change := next((event for event in entry.events if isinstance(event, ev.ToolsetChanged)), None):
            toolset = _toolset(spec, team, changes, change.missing)
            if accepted.task.has_files:
                toolset = toolset.with_files or toolset
        now = entry
        try:
            now = msgspec.structs.replace(entry, events=_with_the_services_own(retraced, entry, spec, toolset))
            retraced.take(now)
        except Exception:
            # The files' agent would not have come here: what it decides is another thing, which `redecide` reports.
            rebased.append(Journaled(seq, now))
            break
        if now.events:
            rebased.append(Journaled(seq, now))
    return rebased


def toolsets_of(journal: Sequence[Journaled]) -> list[ev.ToolsetChanged]:
    """Return what the run was offered, from the first time to the last."""
    return [event for _, entry in journal for event in entry.events if isinstance(event, ev.ToolsetChanged)]


def tools_of_now(journal: Sequence[Journaled], team: TeamFiles) -> dict[str, ToolCard]:
    """The tools that the run would be offered now, by name. Raises CannotRebase."""
    accepted, spec = _begun(journal, team)
    toolset = _toolset(spec, team, toolsets_of(journal), [])
    return (toolset.with_files or toolset).tools if accepted.task.has_files else toolset.tools


def _begun(journal: Sequence[Journaled], team: TeamFiles) -> tuple[ev.RunAccepted, AgentSpec]:
    """Return how the run began, and what its agent's file says now. Raises CannotRebase."""
    first = journal[0].entry
    accepted = next((event for event in first.events if isinstance(event, ev.RunAccepted)), None)
    if accepted is None:
        raise CannotRebase("its journal does not begin with its task")
    spec = team.agents.get(first.agent)
    if spec is None:
        raise CannotRebase(f"the team has no agent {first.agent}")
    if spec.kind != accepted.spec.kind:
        raise CannotRebase(f"it began as an agent of kind {accepted.spec.kind}, and {first.agent} is {spec.kind} now")
    try:
        kind = decided_by(spec_of(accepted.task, spec))
    except (SpecError, msgspec.ValidationError):
        return accepted, spec  # the run ends at its beginning now, which `redecide` reports
    if kind != accepted.decided_by:
        raise CannotRebase(f"kind {accepted.decided_by} decided it, and kind {kind} would decide it now")
    return accepted, spec


def _with_the_services_own(retraced: Retraced, entry: Entry, spec: AgentSpec, toolset: Toolset) -> list[AnyEvent]:
    """The entry's events, with what the service itself adds to them now: the spec as the run begins, its toolset."""
    arrival = msgspec.structs.replace(arrival_of(retraced.run, entry), toolset=toolset)
    if retraced.run.spec is None:
        arrival = msgspec.structs.replace(arrival, spec=spec)
    events = [event for event in entry.events if not isinstance(event, _OF_THE_SERVICE)]
    for place, event in enumerate(retraced.decide(arrival, entry.cause)):
        if isinstance(event, _OF_THE_SERVICE):
            events.insert(place, event)
    return events


def _toolset(spec: AgentSpec, team: TeamFiles, changes: Sequence[ev.ToolsetChanged], missing: Sequence[str]) -> Toolset:
    """Return what the files offer to the agent, and what other services offered to the run besides; nothing that was
    `missing` then."""
    then = [] if team.has_all_tools else [card for change in changes for card in change.tools]
    tools = {card.name: card for card in then}
    members = {card.name: card for change in changes for card in change.members}
    offered = [
        *_presences(tools.values(), members.values(), 0.0),
        *_presences(team.tools, map(card_of, team.agents.values()), _OF_THE_FILES),
    ]
    toolset = toolset_of(spec, [one for one in offered if _name(one) not in missing])
    # Checks and memory were there, or would have been missing: the journal has no cards of them.
    lacking = [name for name in toolset.missing if name in (*spec.tools, *spec.team, *missing)]
    return msgspec.structs.replace(toolset, missing=lacking)


def _presences(tools: Iterable[ToolCard], members: Iterable[AgentCard], started_at: float) -> Iterable[Presence]:
    for tool in tools:
        yield Presence(instance="", host="", pid=0, started_at=started_at, tool=tool)
    for member in members:
        yield Presence(instance="", host="", pid=0, started_at=started_at, agent=member)


def _name(presence: Presence) -> str:
    card = presence.tool or presence.agent
    return card.name if card is not None else ""

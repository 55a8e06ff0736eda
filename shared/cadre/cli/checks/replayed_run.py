"""Exported runs, decided by another specification of their agents."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from cadre.cli.checks.exported_run import read_exported_run
from cadre.deploy.team_file import read_team
from cadre.errors import CommandFailed, ExitCode
from cadre.journal.events import RunAccepted
from cadre.local.team_check import read_tool_cards
from cadre.loop.rebase import CannotRebase, TeamFiles, rebase
from cadre.loop.redecide import Divergence, Journaled, Undecided, redecide
from cadre.loop.tool_changes import ToolChange, tool_changes
from cadre.spec.agent_file import read_agent


class ReplayedRun(msgspec.Struct, kw_only=True):
    """What the files of a team make of an exported run and of those below it."""

    file: str
    """Where it was kept; empty for one that was read from its deployment."""
    id: str
    agent: str
    revision: str = ""
    """The one that the run began with."""
    agents: list[str] = []
    """Those that took part: its own, and those of the runs below it."""
    entries: int = 0
    """Decided anew: those of each run up to its first other decision."""
    divergences: list[Divergence] = []
    """The first other decision of each run that has one."""
    undecided: list[Undecided] = []
    """What the files say nothing about; such a run fails only if nothing else of its tree was decided."""
    tools: list[ToolChange] = []
    """Of each run the tools that are not offered as they were then."""
    problem: str = ""
    """Why the file could not be read."""

    @property
    def is_as_it_was(self) -> bool:
        """Whether every decision that could be made is the journaled one, and one could be made."""
        return not self.divergences and self.entries > 0


def team_files(path: Path) -> TeamFiles:
    """Raises SpecError, CommandFailed."""
    team = read_team(path)
    modules = read_tool_cards(team.tools)
    for module in modules:
        if module.problem:
            raise CommandFailed(f"{team.file}: spec.tools: {module.problem}", ExitCode.USAGE)
    agents = {name: read_agent(file) for name, file in team.agents.items()}
    return TeamFiles(agents, [card for module in modules for card in module.cards])


def replayed(file: Path, team: TeamFiles) -> ReplayedRun:
    """What they make of it. Raises CommandFailed."""
    tree, journals = read_exported_run(file)[:2]
    rebased: list[list[Journaled]] = []
    undecided: list[Undecided] = []
    tools: list[ToolChange] = []
    for run, journal in journals.items():
        try:
            rebased.append(rebase(journal, team))
            tools += tool_changes(journal, team)
        except CannotRebase as why:
            undecided.append(Undecided(run, 1, str(why)))
    replay = redecide(rebased, decisions_only=True)
    first = journals[tree][0].entry
    begun = [event for event in first.events if isinstance(event, RunAccepted)]
    return ReplayedRun(
        file=str(file),
        id=tree,
        agent=first.agent,
        revision=begun[0].revision if begun else "",
        agents=[*dict.fromkeys(journal[0].entry.agent for journal in journals.values())],
        entries=replay.decided,
        divergences=replay.divergences,
        undecided=undecided + replay.undecided,
        tools=tools,
    )


def lines_of(found: ReplayedRun) -> Iterator[str]:
    """The account in full."""
    if found.problem:
        yield f"{found.file}: NOT READ\n    {found.problem}"
        return
    verdict = "as before" if found.is_as_it_was else "OTHERWISE" if found.divergences else "NOT DECIDED"
    yield f"{found.file or found.id}: {found.agent}, {found.entries} entries: {verdict}"
    for one in found.divergences:
        yield f"    {one.run} entry {one.n}"
        yield from (f"        {line}" for line in one.lines)
    for left in found.undecided:
        yield f"    {left.run} entry {left.n} not decided: {left.reason}"

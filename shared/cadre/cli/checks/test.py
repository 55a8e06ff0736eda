"""`cadre test`: kept runs, decided by what the files of their team say now."""

from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from cadre.cli.checks.exported_run import exported_files, read_exported_run
from cadre.cli.terminal.answer import print_text
from cadre.cli.terminal.options import output_option, print_json
from cadre.local.exit_codes import CommandFailed, ExitCode
from cadre.local.team.team_file import read_team
from cadre.local.team.tool_cards import read_tool_cards
from cadre.loop.rebase import CannotRebase, TeamFiles, rebase
from cadre.loop.redecide import Divergence, Journaled, Undecided, redecide
from cadre.spec.agent_file import read_agent

_PATH = click.Path(exists=True, path_type=Path)


class ReplayedRun(msgspec.Struct, kw_only=True):
    """What the files of a team make of an exported run and of those below it."""

    file: str
    id: str
    agent: str
    entries: int = 0
    """Decided anew: those of each run up to its first other decision."""
    divergences: list[Divergence] = []
    """The first other decision of each run that has one."""
    undecided: list[Undecided] = []
    """What the files say nothing about; such a run fails only if nothing else of its tree was decided."""

    @property
    def is_as_it_was(self) -> bool:
        """Whether every decision that could be made is the journaled one, and one could be made."""
        return not self.divergences and self.entries > 0


@click.command("test")
@click.argument("paths", nargs=-1, required=True, type=_PATH, metavar="PATH...")
@click.option(
    "--team",
    type=_PATH,
    default=".",
    show_default=True,
    help="The folder or the team.yaml whose agents and tools are tried.",
)
@output_option("text")
def command(paths: tuple[Path, ...], team: Path, output: str) -> int:
    """Decide exported runs by the files of a team, as they are now, and tell which would go another way.

    PATH is a file that `cadre runs export` wrote, or a folder of such files. What models, tools, members and people
    answered is taken from the journals: nothing is asked, called or started. Ends with 0 when every decision is the one
    that was journaled, else with 1.
    """
    files, present = exported_files(paths), _team_files(team)
    found = [_tried(file, present) for file in files]
    if output == "json":
        print_json([msgspec.to_builtins(one) for one in found])
    else:
        print_text("\n".join(line for one in found for line in _lines(one)))
        failed = sum(not one.is_as_it_was for one in found)
        print_text(f"{len(found)} kept, {len(found) - failed} decided as before, {failed} not")
    return ExitCode.OK if all(one.is_as_it_was for one in found) else ExitCode.FAILED


def _team_files(path: Path) -> TeamFiles:
    """Raises SpecError, CommandFailed."""
    team = read_team(path)
    modules = read_tool_cards(team.tools)
    for module in modules:
        if module.problem:
            raise CommandFailed(f"{team.file}: spec.tools: {module.problem}", ExitCode.USAGE)
    agents = {name: read_agent(file) for name, file in team.agents.items()}
    return TeamFiles(agents, [card for module in modules for card in module.cards])


def _tried(file: Path, team: TeamFiles) -> ReplayedRun:
    tree, journals = read_exported_run(file)[:2]
    rebased: list[list[Journaled]] = []
    undecided: list[Undecided] = []
    for run, journal in journals.items():
        try:
            rebased.append(rebase(journal, team))
        except CannotRebase as why:
            undecided.append(Undecided(run, 1, str(why)))
    replay = redecide(rebased, decisions_only=True)
    return ReplayedRun(
        file=str(file),
        id=tree,
        agent=journals[tree][0].entry.agent if tree in journals else "",
        entries=replay.decided,
        divergences=replay.divergences,
        undecided=undecided + replay.undecided,
    )


def _lines(found: ReplayedRun) -> Iterator[str]:
    verdict = "as before" if found.is_as_it_was else "OTHERWISE" if found.divergences else "NOT DECIDED"
    yield f"{found.file}: {found.agent}, {found.entries} entries: {verdict}"
    for one in found.divergences:
        yield f"    {one.run} entry {one.n}"
        yield from (f"        {line}" for line in one.lines)
    for left in found.undecided:
        yield f"    {left.run} entry {left.n} not decided: {left.reason}"

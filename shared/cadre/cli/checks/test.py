"""`cadre test`: kept runs, decided by what the files of their team say now."""

from pathlib import Path

import click
import msgspec

from cadre.cli.checks.exported_run import ReplayedRun, exported_files, lines_of, replayed, team_files
from cadre.cli.terminal.answer import print_text
from cadre.cli.terminal.options import output_option, print_json
from cadre.errors import CommandFailed, ExitCode
from cadre.loop.rebase import TeamFiles

_PATH = click.Path(exists=True, path_type=Path)


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
    files, present = exported_files(paths), team_files(team)
    found = [_replayed(file, present) for file in files]
    if output == "json":
        print_json([msgspec.to_builtins(one) for one in found])
    else:
        print_text("\n".join(line for one in found for line in lines_of(one)))
        failed = sum(not one.is_as_it_was for one in found)
        print_text(f"{len(found)} kept, {len(found) - failed} decided as before, {failed} not")
    return ExitCode.OK if all(one.is_as_it_was for one in found) else ExitCode.FAILED


def _replayed(file: Path, team: TeamFiles) -> ReplayedRun:
    """One that cannot be read harms no other."""
    try:
        return replayed(file, team)
    except CommandFailed as failure:
        return ReplayedRun(file=str(file), id="", agent="", problem=str(failure))

"""`cadre replay --against`: which kept runs another revision of their agent would have decided otherwise."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from cadre.cli.checks.live_revision import live_revision
from cadre.cli.checks.replayed_run import ReplayedRun, lines_of, replayed, team_files
from cadre.cli.terminal.answer import print_text
from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import print_json
from cadre.cli.terminal.table import table
from cadre.local.exit_codes import CommandFailed, ExitCode
from cadre.loop.rebase import TeamFiles
from cadre.spec.agent_file import read_agent

_HEADERS = ["RUN", "AGENT", "REVISION", "ENTRIES", "VERDICT"]


def replay_against(
    against: str, *, run: str | None, agent: str | None, last: int, file: Path | None, output: str
) -> ExitCode:
    """Decides a run, an exported one, or the last ones of an agent, by the revision `against`; prints what came of it.

    `against` is a file of an agent, a folder or file of a team, or the digits of a live revision. Raises CommandFailed.
    """
    if sum(one is not None for one in (run, agent, file)) != 1:
        raise click.UsageError("name a RUN, or --agent AGENT for its last runs, or a --file")
    if file is not None:
        found = [replayed(file, _files(Path(against)))]
    else:
        with Gateway() as gateway, tempfile.TemporaryDirectory() as folder:
            runs = [gateway.run_id(run)] if run is not None else gateway.ended_runs(str(agent), last)
            whose = agent or str(gateway.get(f"/v1/runs/{runs[0]}")["agent"])
            team = _files(Path(against)) if Path(against).exists() else _live(gateway, whose, against)
            found = [replayed(_exported(gateway, one, Path(folder)), team) for one in runs]
    _print(found, output)
    return ExitCode.OK if all(one.is_as_it_was for one in found) else ExitCode.FAILED


def _exported(gateway: Gateway, run: str, folder: Path) -> Path:
    target = folder / f"{run}.cadre"
    with target.open("wb") as file:
        gateway.download(f"/v1/runs/{run}/export", file)
    return target


def _files(path: Path) -> TeamFiles:
    """What the files say now: those of a team, or of one agent alone. Raises SpecError, CommandFailed."""
    if not path.exists():
        raise CommandFailed(
            f"{path} is no file or folder: a --file is held against files only", ExitCode.USAGE
        )
    if path.is_dir() or path.name == "team.yaml":
        return team_files(path)
    spec = read_agent(path)
    return TeamFiles({spec.name: spec}, [])


def _live(gateway: Gateway, agent: str, revision: str) -> TeamFiles:
    """What the live replicas of the revision were started from. Raises CommandFailed."""
    spec = live_revision(gateway, agent, revision).spec
    return TeamFiles({spec.name: spec}, [])


def _print(found: Sequence[ReplayedRun], output: str) -> None:
    if output == "json":
        print_json([{**msgspec.to_builtins(one), "is_as_it_was": one.is_as_it_was} for one in found])
        return
    click.echo(table(_HEADERS, [_row(one) for one in found]))
    for one in found:
        if one.divergences or one.undecided:
            print_text("\n".join(lines_of(one)))
    failed = sum(not one.is_as_it_was for one in found)
    print_text(
        f"{len(found)} kept, {len(found) - failed} decided as before, {failed} not; models answered what they answered"
        " then: `cadre eval` asks them anew"
    )


def _row(one: ReplayedRun) -> list[str]:
    verdict = "as before" if one.is_as_it_was else "not decided"
    if one.divergences:
        verdict = f"otherwise at entry {one.divergences[0].n}"
    return [one.id, one.agent, one.revision or "-", str(one.entries), verdict]

"""`cadre replay`, `cadre verify` and `cadre test`: decide kept journals again, by their own revision or another, and
check that nothing of them was changed."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from cadre.cli.checks.exported_run import (
    ReplayedRun,
    exported_files,
    exported_lines,
    lines_of,
    live_revision,
    read_exported_run,
    replayed,
    team_files,
)
from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import Decorated, output_option, print_json, with_options
from cadre.cli.terminal.output import print_text, table
from cadre.delivery.hash_chain import ChainCheck
from cadre.errors import CommandFailed, ExitCode
from cadre.loop.rebase import TeamFiles
from cadre.loop.redecide import redecide
from cadre.loop.tool_changes import ToolChange
from cadre.protocol.cards import ToolCard
from cadre.spec.agent_file import read_agent

_HEADERS = ["RUN", "AGENT", "REVISION", "ENTRIES", "TOOLS", "VERDICT"]

_TOLD_CALLS = 3
"""The number of refused calls of one tool that are shown; `-o json` has all."""


def _journal_options(how: str = "") -> Callable[[Decorated], Decorated]:
    """Return the run or the exported file whose journals are read; `how` is what is done with the file."""
    file_help = f"A run that `cadre runs export` wrote{how}; no gateway is asked."
    path = click.Path(dir_okay=False, path_type=Path)
    return with_options(
        click.argument("run", required=False),
        click.option("--run-only", is_flag=True, help="Without the runs below it."),
        click.option("--file", type=path, help=file_help),
        output_option("text"),
    )


@click.command("replay")
@_journal_options(", decided by the Cadre of this command")
@click.option(
    "--against",
    metavar="REV",
    help="Decide by a live revision of the agent (of a member: NAME=REV), or by its file or its team's folder.",
)
@click.option("--agent", help="With --against: the last runs of this agent that have ended, in place of one RUN.")
@click.option("--last", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many of them.")
def command(against: str | None, agent: str | None, last: int, **options: Any) -> int:
    """Decide the journals of RUN and of all runs below it again: an id, a unique beginning of one, or @last.

    Nothing is sent and no run is changed. Ends with 0 when every decision is the one that was journaled, else
    with 1.
    """
    if against is not None:
        if options["run_only"]:
            raise click.UsageError("--run-only does not go with --against: whole trees are decided")
        chosen = {name: options[name] for name in ("run", "file", "output")}
        return replay_against(against, agent=agent, last=last, **chosen)
    if agent is not None:
        raise click.UsageError("--agent goes with --against REV")
    found = _checked("replay", options, _replay_file, _replay_lines)
    return ExitCode.FAILED if found["divergences"] else ExitCode.OK


@click.command("verify")
@_journal_options()
def verify(**options: Any) -> int:
    """Check the hash chains of RUN and of all runs below it: an id, a unique beginning of one, or @last.

    Every entry is sealed by a hash over itself and the entry before it. Ends with 0 when all of them hold, else with 1.
    """
    found = _checked("verify", options, _verify_file, _verify_lines)
    return ExitCode.FAILED if found["broken"] else ExitCode.OK


Account = dict[str, Any]
"""The result of a check, in the form of the gateway's answer."""


def _checked(
    check: str,
    options: dict[str, Any],
    check_file: Callable[[Path, bool], Account],
    lines: Callable[[Account], Iterator[str]],
) -> Account:
    """Have the journals checked, here or by the gateway; print and return what came of it."""
    run, file, run_only = options["run"], options["file"], options["run_only"]
    if (run is None) == (file is None):
        raise click.UsageError("name a RUN, or a --file that `cadre runs export` wrote")
    if file is not None:
        found = check_file(file, run_only)
    else:
        with Gateway() as gateway:
            path = f"/v1/runs/{gateway.run_id(run)}/{check}"
            found = gateway.get(path, run_only="true" if run_only else None)
    if options["output"] == "json":
        print_json(found)
    else:
        print_text("\n".join(lines(found)))
    return found


def _replay_file(file: Path, run_only: bool) -> Account:
    tree = read_exported_run(file)
    replay = redecide([tree.journals[tree.id]] if run_only else tree.journals.values())
    return {"id": tree.id, **msgspec.to_builtins(replay), "omitted": 0}


def _verify_file(file: Path, run_only: bool) -> Account:
    tree = ""
    check = ChainCheck()

    def is_wanted(run: str) -> bool:
        return not run_only or run == tree

    for line in exported_lines(file):
        tree = line.tree
        if line.line == "entry":
            check.take(bytes(line.entry), is_wanted)
    if not run_only:
        check.check_members()
    broken = [msgspec.to_builtins(link) for link in check.broken]
    return {
        "id": tree,
        "runs": check.runs,
        "entries": check.entries,
        "broken": broken,
    }


def _replay_lines(found: Account) -> Iterator[str]:
    for divergence in found["divergences"]:
        yield f"{divergence['run']} entry {divergence['n']}: {divergence['about']}"
        yield from (f"    {line}" for line in divergence["lines"])
    for unknown in found["undecided"]:
        yield f"{unknown['run']} entry {unknown['n']}: not decided again: {unknown['reason']}"
    if found["omitted"]:
        yield f"… and {found['omitted']} more divergences"
    count = len(found["divergences"]) + found["omitted"]
    verdict = _many(count, "divergence") if count else "no divergence"
    yield (
        f"{_many(found['runs'], 'run')}, {_many(found['entries'], 'entry', 'entries')}:"
        f" {found['decided']} decided again: {verdict}"
    )


def _verify_lines(found: Account) -> Iterator[str]:
    for link in found["broken"]:
        yield f"{link['run']} entry {link['n']}: {link['reason']}"
    verdict = f"{len(found['broken'])} broken" if found["broken"] else "all of them hold"
    yield f"{found['runs']} run(s), {found['entries']} entries: {verdict}"


def _many(count: int, one: str, many: str | None = None) -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def replay_against(
    against: str, *, run: str | None, agent: str | None, last: int, file: Path | None, output: str
) -> ExitCode:
    """Decide a run, an exported one, or the last ones of an agent, by the revision `against`; prints what came of it.

    `against` is a file of an agent, a folder or file of a team, or the digits of a live revision, with AGENT= before
    them of another agent than the runs': a member. Raises CommandFailed.
    """
    if sum(one is not None for one in (run, agent, file)) != 1:
        raise click.UsageError("name a RUN, or --agent AGENT for its last runs, or a --file")
    if file is not None:
        found = [replayed(file, _files(Path(against)))]
    else:
        with Gateway() as gateway, tempfile.TemporaryDirectory() as folder:
            runs = [gateway.run_id(run)] if run is not None else gateway.ended_runs(str(agent), last)
            whose = agent or str(gateway.get(f"/v1/runs/{runs[0]}")["agent"])
            file, tools = Path(against), _live_tools(gateway)
            team = _files(file, tools) if file.exists() else _live(gateway, whose, against, tools)
            kept = [replayed(_exported(gateway, one, Path(folder)), team) for one in runs]
            found = [msgspec.structs.replace(one, file="") for one in _with_a_part(kept, whose, team)]
    _print(found, output)
    return ExitCode.OK if all(one.is_as_it_was for one in found) else ExitCode.FAILED


def _with_a_part(kept: list[ReplayedRun], whose: str, team: TeamFiles) -> list[ReplayedRun]:
    """Return the kept runs in which the member took part, for a member's revision. Raises CommandFailed if none is
    left."""
    if whose in team.agents:
        return kept
    found = [one for one in kept if not team.agents.keys().isdisjoint(one.agents)]
    if not found:
        names = ", ".join(team.agents)
        raise CommandFailed(
            f"{names} took part in none of the runs of {whose} that were looked at ({len(kept)}): `--last N` looks at"
            " more, `--agent NAME` at those of another agent",
            ExitCode.NOT_FOUND,
        )
    return found


def _exported(gateway: Gateway, run: str, folder: Path) -> Path:
    target = folder / f"{run}.cadre"
    with target.open("wb") as file:
        gateway.download(f"/v1/runs/{run}/export", file)
    return target


def _live_tools(gateway: Gateway) -> list[ToolCard]:
    return [msgspec.convert(one, ToolCard) for one in gateway.get("/v1/tools")["tools"]]


def _files(path: Path, live: Sequence[ToolCard] = ()) -> TeamFiles:
    """Return what the files say now: those of a team, or of one agent alone, which gets the live tools.

    Raises SpecError, CommandFailed.
    """
    if not path.exists():
        raise CommandFailed(f"{path} is no file or folder: a --file is held against files only", ExitCode.USAGE)
    if path.is_dir() or path.name == "team.yaml":
        return team_files(path)
    spec = read_agent(path)
    return TeamFiles({spec.name: spec}, list(live))


def _live(gateway: Gateway, whose: str, against: str, tools: list[ToolCard]) -> TeamFiles:
    """Return what the live replicas of the revision were started from, with the live tools. Raise CommandFailed."""
    agent, _, revision = against.rpartition("=")
    spec = live_revision(gateway, agent or whose, revision).spec
    return TeamFiles({spec.name: spec}, tools, has_all_tools=True)


def _print(found: Sequence[ReplayedRun], output: str) -> None:
    if output == "json":
        print_json([{**msgspec.to_builtins(one), "is_as_it_was": one.is_as_it_was} for one in found])
        return
    click.echo(table(_HEADERS, [_row(one) for one in found]))
    for one in found:
        if one.divergences or one.undecided:
            print_text("\n".join(lines_of(one)))
    for line in _tool_lines([change for one in found for change in one.tools]):
        print_text(line)
    failed = sum(not one.is_as_it_was for one in found)
    print_text(
        f"{len(found)} kept, {len(found) - failed} decided as before, {failed} not; models answered what they answered"
        " then: `cadre eval` asks them again"
    )


def _tool_lines(changes: Sequence[ToolChange]) -> Iterator[str]:
    """Each change once, with the runs that it is of and the calls that could not be made."""
    same: dict[tuple[str, ...], list[ToolChange]] = {}
    for one in changes:
        same.setdefault((one.tool, one.change, *one.lines), []).append(one)
    for (tool, change, *lines), of_it in same.items():
        refused = {call: why for one in of_it for call, why in one.refused.items()}
        calls = sum(one.calls for one in of_it)
        yield f"tool {tool} {change}: calls {calls}, would be refused now {len(refused)}"
        yield from (f"    {line}" for line in lines)
        yield from (f"    {call}: {why}" for call, why in [*refused.items()][:_TOLD_CALLS])


def _row(one: ReplayedRun) -> list[str]:
    verdict = "as before" if one.is_as_it_was else "not decided"
    if one.divergences:
        verdict = f"otherwise at entry {one.divergences[0].n}"
    tools = ", ".join(dict.fromkeys(f"{change.tool} {change.change}" for change in one.tools))
    return [one.id, one.agent, one.revision or "-", str(one.entries), tools or "as then", verdict]


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
def test(paths: tuple[Path, ...], team: Path, output: str) -> int:
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

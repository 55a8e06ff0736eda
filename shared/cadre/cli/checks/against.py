"""`cadre replay --against`: which kept runs another revision of their agent would have decided otherwise."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import msgspec

from cadre.cli.checks.live_revision import live_revision
from cadre.cli.checks.replayed_run import ReplayedRun, lines_of, replayed, team_files
from cadre.cli.terminal.answer import print_text
from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import print_json
from cadre.cli.terminal.table import table
from cadre.errors import CommandFailed, ExitCode
from cadre.loop.rebase import TeamFiles
from cadre.loop.tool_changes import ToolChange
from cadre.protocol.cards import ToolCard
from cadre.spec.agent_file import read_agent

_HEADERS = ["RUN", "AGENT", "REVISION", "ENTRIES", "TOOLS", "VERDICT"]

_TOLD_CALLS = 3
"""Refused calls of one tool that are told; `-o json` has all."""


def replay_against(
    against: str, *, run: str | None, agent: str | None, last: int, file: Path | None, output: str
) -> ExitCode:
    """Decides a run, an exported one, or the last ones of an agent, by the revision `against`; prints what came of it.

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
    """Of a member's revision, the runs in which the member took part. Raises CommandFailed when there is none."""
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
    """What the files say now: those of a team, or of one agent alone, which gets its tools from whoever is live.

    Raises SpecError, CommandFailed.
    """
    if not path.exists():
        raise CommandFailed(
            f"{path} is no file or folder: a --file is held against files only", ExitCode.USAGE
        )
    if path.is_dir() or path.name == "team.yaml":
        return team_files(path)
    spec = read_agent(path)
    return TeamFiles({spec.name: spec}, list(live))


def _live(gateway: Gateway, whose: str, against: str, tools: list[ToolCard]) -> TeamFiles:
    """What the live replicas of the revision were started from, with the live tools. Raises CommandFailed."""
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
        " then: `cadre eval` asks them anew"
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

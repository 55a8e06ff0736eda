"""`cadre replay` and `cadre verify`: a run's journals decided anew, and their hash chains checked."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from cadre.cli.checks.against import replay_against
from cadre.cli.checks.exported_run import exported_lines, read_exported_run
from cadre.cli.terminal.answer import print_text
from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import Decorated, output_option, print_json, with_options
from cadre.delivery.hash_chain import ChainCheck
from cadre.errors import ExitCode
from cadre.loop.redecide import redecide


def _journal_options(how: str = "") -> Callable[[Decorated], Decorated]:
    """The run or the exported file whose journals are read; `how` is what is done with the file."""
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
@click.option(
    "--agent", help="With --against: the last runs of this agent that have ended, in place of one RUN."
)
@click.option("--last", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many of them.")
def command(against: str | None, agent: str | None, last: int, **options: Any) -> int:
    """Decide the journals of RUN and of all runs below it anew: an id, a unique beginning of one, or @last.

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
"""What a check came to, in the form of the gateway's answer."""


def _checked(
    check: str,
    options: dict[str, Any],
    check_file: Callable[[Path, bool], Account],
    lines: Callable[[Account], Iterator[str]],
) -> Account:
    """Has the journals checked, here or by the gateway; prints and returns what came of it."""
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
        yield f"{unknown['run']} entry {unknown['n']}: not decided anew: {unknown['reason']}"
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

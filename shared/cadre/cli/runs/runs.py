"""`cadre runs`: the list of runs, newest first, and what is done with a run as a whole."""

import sys
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import click
from click.core import ParameterSource

from cadre.api.runs import RunOrder, State
from cadre.cli.run_view.run_text import state, tokens, took
from cadre.cli.runs.files import output_file
from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import output_option, print_found, print_json
from cadre.cli.terminal.output import print_text, table
from cadre.errors import CommandFailed, ExitCode
from cadre.views.words import brief

_GIVEN = ParameterSource.COMMANDLINE

STDOUT = "-"

_MAX_PAGE = 1000


@click.group("runs", invoke_without_command=True)
@click.option("--agent", metavar="NAME", help="Only runs of this agent.")
@click.option("--member", metavar="NAME", help="Only runs in which this agent has a run, as the root or below it.")
@click.option("--state", type=click.Choice(get_args(State)), help="Only runs in this state.")
@click.option("--waiting-for", metavar="WHAT", help="Only runs that wait for: approval, model, time, or 'signal NAME'.")
@click.option(
    "--since",
    metavar="WHEN",
    help="Only runs asked for since: a date or time (UTC), or so long ago: 12h, 7d.",
)
@click.option("--until", metavar="WHEN", help="Only runs asked for before that.")
@click.option("--min-cost", type=click.FloatRange(min=0), help="Only runs that cost at least so much.")
@click.option("--session", metavar="NAME", help="Only runs of this conversation.")
@click.option("--user", metavar="NAME", help="Only runs of this person.")
@click.option(
    "--label",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="Only runs that were started with this label, and each further one.",
)
@click.option("--text", metavar="WORDS", help="Only runs that have all of these words in the task or the answer.")
@click.option("--error", metavar="CODE", help="Only runs that ended with an error of this code, or type.")
@click.option("--parent", metavar="RUN", help="The runs directly below this one, instead of root runs.")
@click.option("--sort", type=click.Choice(get_args(RunOrder)), help="What the list begins with the most of.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True)
@click.option("--count", is_flag=True, help="Print only how many there are in all.")
@output_option("table")
@click.pass_context
def command(ctx: click.Context, /, limit: int, count: bool, output: str, **which: Any) -> None:
    """List root runs, newest first; or erase, export or import whole runs."""
    given = [name for name in ctx.params if ctx.get_parameter_source(name) is _GIVEN]
    if ctx.invoked_subcommand is not None and given:
        option = given[0].replace("_", "-")
        raise click.UsageError(f"--{option} is about the list, not about `{ctx.invoked_subcommand}`", ctx)
    if ctx.invoked_subcommand is not None:
        return
    with Gateway() as gateway:
        if which["parent"] is not None:
            which["parent"] = gateway.run_id(which["parent"])
        if count:
            click.echo(gateway.get("/v1/runs", limit=1, count="true", **which)["total"])
        else:
            _list(gateway, limit, output, which)


@command.command("remove")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--force", is_flag=True, help="Cancel a run that has not ended, wait for its end, then erase it.")
@output_option("text")
def erase(runs: tuple[str, ...], force: bool, output: str) -> None:
    """Erase each RUN with all runs below it, everywhere and for good: an id, a unique beginning of one, or @last."""
    failure: CommandFailed | None = None
    with Gateway() as gateway:
        for run in _each_once(gateway, runs):
            if isinstance(run, CommandFailed):
                failure = _next_failure(failure, run)
                continue
            try:
                erased = gateway.delete(f"/v1/runs/{run}", force="true" if force else None)
            except CommandFailed as error:
                failure = _next_failure(failure, error)
            else:
                said = f"{erased['id']} erased ({_count(erased)})"
                print_json(erased) if output == "json" else click.echo(said)
    if failure is not None:
        raise failure


@command.command("export")
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--agent", metavar="NAME", help="The last runs of this agent that have ended, in place of RUN.")
@click.option("--last", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many of them.")
@click.option(
    "-o",
    "--output",
    "target",
    metavar="FILE|FOLDER",
    help="Where to; `-` is stdout. Of several runs: the folder for their files [RUN.cadre].",
)
def export_run(runs: tuple[str, ...], agent: str | None, last: int, target: str | None) -> None:
    """Write each RUN, which has ended, with all runs below it and their blobs to one file."""
    if bool(runs) == (agent is not None):
        raise click.UsageError("name a RUN, or several, or --agent NAME")
    many = agent is not None or len(runs) > 1
    if many and target == STDOUT:
        raise click.UsageError("stdout has room for one run: name a folder")
    with Gateway() as gateway:
        named = gateway.ended_runs(agent, last) if agent is not None else [gateway.run_id(run) for run in runs]
        if target == STDOUT:
            gateway.download(f"/v1/runs/{named[0]}/export", sys.stdout.buffer)
            return
        is_folder = target is not None and (target.endswith("/") or Path(target).is_dir())
        folder = Path(target or ".") if many or is_folder else None
        _make(folder if folder is not None else Path(target or ".").parent)
        for identity in dict.fromkeys(named):
            file = folder / f"{identity}.cadre" if folder is not None else Path(target or f"{identity}.cadre")
            with output_file(file) as stream:
                gateway.download(f"/v1/runs/{identity}/export", stream)
            click.echo(f"{identity} exported to {file} ({file.stat().st_size} bytes)")


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandFailed(f"{folder}: {error.strerror}: name a folder", ExitCode.USAGE) from error


@command.command("import")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--unverified", is_flag=True, help="Also a file whose hash chains do not hold.")
@output_option("text")
def import_run(file: Path, unverified: bool, output: str) -> None:
    """Bring the run in FILE, which `cadre runs export` wrote, to this deployment.

    A file whose hash chains do not hold (`cadre verify --file`) is refused.
    """
    try:
        stream = file.open("rb")
    except OSError as error:
        raise CommandFailed(f"{file}: {error.strerror}", ExitCode.USAGE) from error
    with stream, Gateway() as gateway:
        try:
            path = f"/v1/runs/import{'?unverified=true' if unverified else ''}"
            imported = gateway.send("POST", path, stream, "application/gzip")
        except CommandFailed as failure:
            raise CommandFailed(f"{file}: {failure.message}", failure.code) from failure
    said = f"{imported['id']} imported ({_count(imported)}, {imported['entries']} entries)"
    print_found(output, imported, lambda: said)


def _list(gateway: Gateway, limit: int, output: str, which: dict[str, Any]) -> None:
    found = gateway.items("/v1/runs", "runs", "before", limit=min(limit + 1, _MAX_PAGE), **which)
    runs = list(islice(found, limit + 1))
    is_more, runs = len(runs) > limit, runs[:limit]
    if output == "json":
        print_json(runs)
    elif not runs:
        is_filtered = any(value not in (None, ()) for value in which.values())
        click.echo(
            "no runs are like that" if is_filtered else 'no runs: start one with `cadre run AGENT "TASK"`',
            err=True,
        )
    else:
        costs = [(run.get("usage") or {}).get("cost") or 0 for run in runs]
        priced = ["COST"] if any(costs) else []
        headers = ["RUN", "AGENT", "STATE", "STEP", "TOKENS", *priced, "TOOK", "TASK"]
        rows = [_row(run, [f"{cost:.4g}"] * len(priced)) for run, cost in zip(runs, costs, strict=True)]
        click.echo(table(headers, rows))
    if is_more:
        click.echo("cadre: there are more: --limit shows them", err=True)


def _row(run: dict[str, Any], cost: list[str]) -> list[str]:
    return [
        run["id"],
        run["agent"],
        state(run),
        str(run.get("step") or 0),
        tokens(run),
        *cost,
        took(run),
        brief(run.get("task") or "", 200),
    ]


def _each_once(gateway: Gateway, references: tuple[str, ...]) -> list[str | CommandFailed]:
    """Return the id of each reference, or why it has none.

    All are looked up before the first run is erased: @last is that of now.
    """
    found: list[str | CommandFailed] = []
    for reference in references:
        try:
            run: str | CommandFailed = gateway.run_id(reference)
        except CommandFailed as failure:
            if failure.code is ExitCode.UNREACHABLE:
                raise
            run = failure
        if run not in found:
            found.append(run)
    return found


def _next_failure(before: CommandFailed | None, failure: CommandFailed) -> CommandFailed:
    """Print the failure before, if any; the returned one ends the command and is printed last."""
    if before is not None:
        print_text(f"cadre: {before.message}", err=True)
    return failure


def _count(found: dict[str, Any]) -> str:
    return "1 run" if found["runs"] == 1 else f"{found['runs']} runs"

"""`cadre memory search|list|show|forget|export|import`: what agents remember, looked into through the gateway."""

import sys
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any, BinaryIO, get_args

import click
import msgspec

from cadre.cli.terminal.gateway import WHOLE_ID, Gateway
from cadre.cli.terminal.options import output_option, print_json, with_options
from cadre.cli.terminal.output import print_text, table
from cadre.errors import CommandFailed, ExitCode
from cadre.protocol.messages import MemoryScope
from cadre.views.words import brief

MEMORY = "/v1/memory"

_PAGE_SIZE = 50
_MAX_IMPORT_BYTES = 700_000

_selection_options = with_options(
    click.option("--scope", type=click.Choice(get_args(MemoryScope)), help="Only of this scope."),
    click.option("--agent", metavar="NAME", help="Remembered by this agent."),
    click.option("--team", metavar="NAME", help="Of this team."),
    click.option("--user", metavar="NAME", help="Of this person, in any scope."),
    click.option("--session", metavar="NAME", help="Of this conversation."),
    click.option("--run", metavar="ID", help="Of this run; a root run stands for its whole tree."),
    click.option("--all", "everybody", is_flag=True, help="Everybody's."),
)
"""Adds the options that say whose memories are meant."""

_kind = click.option("--kind", "kinds", multiple=True, metavar="KIND", help="note, step or answer; repeatable.")


@click.command("search")
@click.argument("query")
@_selection_options
@_kind
@click.option("-k", type=click.IntRange(1, _PAGE_SIZE), default=5, show_default=True, help="Memories at most.")
@output_option("table")
def search(query: str, kinds: tuple[str, ...], k: int, output: str, **whose: Any) -> int:
    """Find memories that fit QUERY, the best first."""
    with Gateway() as gateway:
        selection = _selected(gateway, whose)
        request = {"query": query, "k": k, "kinds": list(kinds), "selection": selection}
        found = gateway.post(f"{MEMORY}/search", request)
    if output == "json":
        print_json(found)
        return ExitCode.OK
    _show_rows(found["hits"])
    if found["degraded"]:
        print_text(f"cadre: {found['why']}", err=True)
    return ExitCode.OK


@click.command("list")
@_selection_options
@_kind
@click.option("--since", metavar="WHEN", help="Only those since: a date or time (UTC), or so long ago: 12h, 7d.")
@click.option("--until", metavar="WHEN", help="Only those before: a date or time, or an age.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True)
@output_option("table")
def list_memories(
    kinds: tuple[str, ...], since: str | None, until: str | None, limit: int, output: str, **whose: Any
) -> int:
    """List memories."""
    with Gateway() as gateway:
        query = {
            **_query_fields(_selected(gateway, whose)),
            "kind": list(kinds),
            **({"since": since} if since is not None else {}),
            **({"until": until} if until is not None else {}),
            "limit": min(limit, _PAGE_SIZE),
        }
        rows = list(islice(gateway.items(MEMORY, "memories", "after", **query), limit))
    print_json(rows) if output == "json" else _show_rows(rows)
    return ExitCode.OK


@click.command("show")
@click.argument("memory")
@output_option("table")
def show(memory: str, output: str) -> int:
    """Show one memory whole: its text, and where it comes from."""
    with Gateway() as gateway:
        chunks = gateway.get(f"{MEMORY}/{memory}")["memories"]
    print_json(chunks) if output == "json" else _show_whole(chunks)
    if missing := chunks[0].get("count", 1) - len(chunks):
        raise CommandFailed(
            f"{missing} of its {chunks[0]['count']} chunks are missing here: it is still being"
            " stored; `cadre memory export` has what is stored"
        )
    return ExitCode.OK


def _show_whole(chunks: list[dict[str, Any]]) -> None:
    first = chunks[0]
    for field in ("memory", "scope", "kind", "agent", "user", "team", "session", "run", "step"):
        if first.get(field):
            print_text(f"{field:<8}  {brief(first[field], 200)}")
    click.echo(f"{'at':<8}  {_when(first['at'])}")
    if first.get("expires_at"):
        click.echo(f"{'expires':<8}  {_when(first['expires_at'])}")
    for chunk in chunks:
        print_text(f"\n{chunk['text']}")


@click.command("forget")
@click.argument("memory", required=False)
@_selection_options
@click.option("--yes", is_flag=True, help="Do not ask.")
def forget(memory: str | None, yes: bool, **whose: Any) -> int:
    """Remove one MEMORY, or all of a selection, for good; says first how much that is."""
    given = _given_options(whose)
    if (memory is None) == (not given):
        raise click.UsageError("name one MEMORY, or say whose: --user, --agent, …, --all")
    with Gateway() as gateway:
        if memory is not None:
            receipt = gateway.delete(f"{MEMORY}/{memory}")
        else:
            params = _query_fields(_selected(gateway, whose))
            matched = gateway.delete(MEMORY, **params)["matched"]
            if not matched:
                _print_none()
            elif not yes:
                _confirm(matched)
            receipt = gateway.delete(MEMORY, **params, confirm="true")
    click.echo(f"forgotten: {receipt['forgotten']}, left: {receipt['left']}")
    return ExitCode.OK if receipt["left"] == 0 else ExitCode.FAILED


@click.command("export")
@_selection_options
@_kind
@click.option("-o", "--output", "target", type=click.File("wb"), default="-", help="File to write.  [default: stdout]")
def export_all(kinds: tuple[str, ...], target: Any, **whose: Any) -> int:
    """Write memories as JSON lines, expired ones that are not removed yet among them."""
    with Gateway() as gateway:
        query = [f"{key}={_quoted(value)}" for key, value in _query_fields(_selected(gateway, whose)).items()]
        query += [f"kind={_quoted(kind)}" for kind in kinds]
        if not gateway.download(f"{MEMORY}/export?{'&'.join(query)}", target):
            _print_none()
    target.flush()
    return ExitCode.OK


@click.command("import")
@click.argument("source", type=click.File("rb"), metavar="FILE")
def import_all(source: BinaryIO) -> int:
    """Keep the memories of FILE, which `cadre memory export` has written; - reads what comes in. Those that are there
    already stay one, so it can be called again."""
    from cadre.protocol.memory import Remembered

    decoder = msgspec.json.Decoder(Remembered)
    kept = 0
    with Gateway() as gateway:
        for lines in _batches(source):
            try:
                memories = [msgspec.to_builtins(decoder.decode(line)) for line in lines]
            except msgspec.MsgspecError as error:
                raise CommandFailed(f"{source.name} is no export of memories: {error}", ExitCode.USAGE) from error
            kept += gateway.post(f"{MEMORY}/import", {"memories": memories})["kept"]
    click.echo(f"kept: {kept}")
    return ExitCode.OK


def _batches(source: BinaryIO) -> Iterator[list[bytes]]:
    """Yield as many lines as one request may have; a request's message on the bus holds a megabyte."""
    found: list[bytes] = []
    for line in source:
        if found and (len(found) == _PAGE_SIZE or sum(map(len, found)) + len(line) > _MAX_IMPORT_BYTES):
            yield found
            found = []
        found += [line] if line.strip() else []
    if found:
        yield found


def _given_options(whose: dict[str, Any]) -> dict[str, Any]:
    named = {"all" if key == "everybody" else key: value for key, value in whose.items()}
    return {key: value for key, value in named.items() if value is not None and value is not False}


def _selected(gateway: Gateway, whose: dict[str, Any]) -> dict[str, Any]:
    given = _given_options(whose)
    if not set(given) - {"scope"}:
        raise click.UsageError("whose memories? Say --user, --agent, --team, --session or --run, or --all")
    if "run" in given:
        given["run"] = _run(gateway, given["run"])
    return given


def _run(gateway: Gateway, reference: str) -> str:
    """Return the id of the run. A whole id stands for itself even if the run is erased: memories of it may still be
    there."""
    try:
        return gateway.run_id(reference)
    except CommandFailed as failure:
        if failure.code is ExitCode.NOT_FOUND and WHOLE_ID.fullmatch(reference):
            return reference
        raise


def _query_fields(selection: dict[str, Any]) -> dict[str, str]:
    return {key: "true" if value is True else str(value) for key, value in selection.items()}


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")


def _confirm(matched: int) -> None:
    if not sys.stdin.isatty():
        raise CommandFailed(f"{matched} chunks would be removed for good: say --yes", ExitCode.USAGE)
    click.confirm(f"remove {matched} chunks for good?", abort=True, err=True)


def _print_none() -> None:
    click.echo("no memories fit", err=True)


def _show_rows(rows: list[dict[str, Any]]) -> None:
    if not rows:
        _print_none()
        return
    click.echo(table(["MEMORY", "SCOPE", "OWNER", "AGENT", "KIND", "AT", "TEXT"], [_row(row) for row in rows]))


def _row(row: dict[str, Any]) -> list[str]:
    scope = str(row["scope"])
    owner = row["tree"] if scope == "run" else row.get(scope) or row["agent"]
    count = row.get("count", 1)
    part = f" ({row.get('index', 0) + 1}/{count})" if count > 1 else ""
    return [
        f"{row['memory']}{part}",
        scope,
        brief(owner, 60),
        row["agent"],
        row["kind"],
        _when(row["at"]),
        brief(row["text"], 200),
    ]


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


COMMANDS = (search, list_memories, show, forget, export_all, import_all)
"""The commands of `cadre memory` besides serving."""

"""`cadre files`: the files of a run's workspace, listed, downloaded, uploaded; and files that an answer names."""

import contextlib
import mimetypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

import click

from cadre.cli.terminal.gateway import Gateway
from cadre.cli.terminal.options import print_json
from cadre.cli.terminal.output import print_text, size_text, table
from cadre.errors import CommandFailed, ExitCode
from cadre.tools.workspace import WrongPath, normal_path

STDOUT = "-"
BLOB = "blob:"


@click.command("files")
@click.argument("run")
@click.argument("path", required=False)
@click.option("-o", "--output", "target", metavar="FILE", help="Where to download to; `-` is stdout.")
@click.option(
    "--put",
    "source",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Give RUN this file, under its own name or as PATH.",
)
@click.option("--json", "as_json", is_flag=True, help="The list as JSON.")
def command(run: str, path: str | None, target: str | None, source: Path | None, as_json: bool) -> int:
    """List the files of RUN's workspace, or download one of them.

    RUN is an id, a unique beginning of one, or @last. In its place a file that an answer names may stand:
    `cadre files blob:… -o FILE`.
    """
    with Gateway() as gateway:
        if run.startswith(BLOB):
            _download(gateway, f"/v1/blobs/{quote(run.removeprefix(BLOB))}", target or STDOUT)
            return ExitCode.OK
        identity = gateway.run_id(run)
        if source is not None:
            _upload(gateway, identity, source, _inside(path or source.name))
        elif path is not None:
            place = f"/v1/runs/{identity}/files/{quote(_inside(path))}"
            _download(gateway, place, target or _own_name(path))
        elif target is not None:
            raise click.UsageError("--output needs the PATH of a file: `cadre files RUN` lists them")
        else:
            _list(gateway, identity, as_json)
    return ExitCode.OK


def _inside(path: str) -> str:
    """Return the path in its normal form, which stays in the workspace: an HTTP client would follow `..` out of it."""
    try:
        return normal_path(path)
    except WrongPath as error:
        raise click.UsageError(str(error)) from error


def _list(gateway: Gateway, run: str, as_json: bool) -> None:
    files = gateway.get(f"/v1/runs/{run}/files")["files"]
    if as_json:
        print_json(files)
    elif not files:
        click.echo(f"run {run} has no files", err=True)
    else:
        rows = [
            [
                str(one["version"]),
                size_text(one["size"]),
                one["media_type"],
                one.get("by") or "-",
                one["path"],
            ]
            for one in files
        ]
        click.echo(table(["VERSION", "SIZE", "TYPE", "BY", "PATH"], rows))


def _own_name(path: str) -> str:
    """Return where to write a download: to a file of the same name at a terminal, to stdout in a pipe."""
    return Path(path).name if sys.stdout.isatty() else STDOUT


def _download(gateway: Gateway, path: str, target: str) -> None:
    if target == STDOUT:
        gateway.download(path, sys.stdout.buffer)
        return
    file = Path(target)
    with output_file(file) as stream:
        gateway.download(path, stream)
    click.echo(f"{file} ({size_text(file.stat().st_size)})", err=True)


def _upload(gateway: Gateway, run: str, source: Path, path: str) -> None:
    kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
    try:
        with source.open("rb") as stream:
            entry = gateway.send("PUT", f"/v1/runs/{run}/files/{quote(path)}", stream, kind)
    except OSError as error:
        raise CommandFailed(f"{source}: {error.strerror}", ExitCode.USAGE) from error
    print_text(f"{entry['path']} (version {entry['version']}, {size_text(entry['size'])})")


@contextlib.contextmanager
def output_file(file: Path) -> Iterator[BinaryIO]:
    """Open `file` for writing: it appears when it is whole and not before. A device or pipe is written directly.

    Raises CommandFailed, naming the file.
    """
    file = file.resolve()
    if file.exists() and not file.is_file():
        with _named_errors(file), file.open("wb") as stream:
            yield stream
        return
    partial = file.with_name(f".{file.name}.{os.getpid()}.part")
    with _named_errors(file):
        try:
            with partial.open("wb") as stream:
                yield stream
            partial.replace(file)
        finally:
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def _named_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CommandFailed(f"{file}: {error.strerror or error}") from error

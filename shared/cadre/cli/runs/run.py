"""`cadre run`: gives an agent a task, shows the run on stderr, prints the answer on stdout."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import click

from cadre.cli.runs.launch import launch
from cadre.cli.terminal.options import bound_options, bounds, following_options, key_values, text_values, utf8
from cadre.client.run_options import URL_PREFIXES, data_url


@click.command("run")
@click.argument("agent")
@click.argument("task", required=False)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=VALUE",
    help="Value that the agent reads by its name; JSON if it parses.",
)
@click.option("--image", "images", multiple=True, metavar="FILE|URL", help="Image for the model to see.")
@click.option(
    "--file",
    "files",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for the run's workspace, under its own name.",
)
@bound_options
@click.option(
    "--output-schema",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JSON Schema that the answer must fit, in place of the agent's own.",
)
@click.option("--session", metavar="NAME", help="Conversation that the run goes on with, or begins.")
@click.option("--user", metavar="NAME", help="Person that it works for: whose memories it may share.")
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="NAME=VALUE",
    help="A word of your own, by which `cadre runs --label` finds it.",
)
@click.option("--reset", is_flag=True, help="Start the session afresh, without its earlier runs.")
@following_options("the run")
def command(**options: Any) -> int:
    """Give AGENT a task and follow the run until it ends.

    Without TASK, or with -, the task is read from standard input. The answer goes to stdout, all else to
    stderr. The first Ctrl-C cancels the run, the second leaves it running.
    """
    if options["reset"] and not options["session"]:
        raise click.UsageError("--reset needs --session NAME: the conversation to start afresh")
    request = {
        "agent": options["agent"],
        "task": _task(options["task"]),
        "inputs": key_values("--input", options["inputs"]),
        "images": [_image(text) for text in options["images"]],
        "files": _files(options["files"]),
        **bounds(options),
        "output_schema": _schema(options["output_schema"]),
        "session": options["session"],
        "user": options["user"],
        "labels": text_values("--label", options["labels"]),
        "reset": options["reset"] or None,
    }
    request = {key: value for key, value in request.items() if value not in (None, [], {})}
    return asyncio.run(launch(request, options))


def _task(argument: str | None) -> str:
    if argument is None and sys.stdin.isatty():
        raise click.UsageError('there is no task: write `cadre run AGENT "TASK"`, or pipe it in')
    try:
        task = sys.stdin.read() if argument in (None, "-") else argument
    except UnicodeDecodeError as error:
        raise click.UsageError(f"the task is not UTF-8 text (at byte {error.start + 1})") from error
    if task is None or not task.strip():
        raise click.UsageError("the task is empty")
    return utf8("the task", task)


def _schema(file: Path | None) -> Any:
    """Return the JSON of the file. Raises UsageError."""
    try:
        return json.loads(file.read_bytes()) if file is not None else None
    except (OSError, ValueError) as error:
        raise click.UsageError(f"--output-schema {file}: {error}") from error


def _files(paths: tuple[Path, ...]) -> dict[str, str]:
    """Return the files as `data:` URLs by the names that the run will know them by. Raises UsageError."""
    named: dict[str, Path] = {}
    for path in paths:
        if path.name in named:
            raise click.UsageError(
                f"--file {named[path.name]} and --file {path} would both be {path.name}: rename one of them,"
                " or give it to the run with `cadre files RUN --put FILE PATH`"
            )
        named[path.name] = path
    return {name: _data_url("--file", str(path)) for name, path in named.items()}


def _image(text: str) -> str:
    if text.startswith(URL_PREFIXES):
        return text
    url = _data_url("--image", text)
    if not url.startswith("data:image/"):
        raise click.UsageError(f"--image {text}: its name does not end like that of an image (.png, .jpg, …)")
    return url


def _data_url(option: str, file: str) -> str:
    """Return the file as a `data:` URL, its media type by its name. Raises UsageError, naming the option."""
    try:
        return data_url(file, Path(file).read_bytes())
    except OSError as error:
        raise click.UsageError(f"{option} {file}: {error.strerror}") from error

"""The options of a run that is started or forked, and the request's body made from them."""

import base64
import mimetypes
import os
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypedDict

import msgspec

from cadre.api.runs import RunOrder, State
from cadre.errors import SpecError
from cadre.protocol.usage import Budget
from cadre.structs import made
from cadre.tools.json_types import answer_type

Source = str | os.PathLike[str] | bytes
"""The path of a file, or its content."""

URL_PREFIXES = ("https://", "http://", "data:", "blob:")
"""The prefixes of images that are passed on unchanged, because they are not files."""


def data_url(name: str, content: bytes) -> str:
    """Return the content as a `data:` URL, its media type by the name."""
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def file_urls(files: Mapping[str, Source] | Iterable[str | os.PathLike[str]]) -> dict[str, str]:
    """Return the files by their paths in the workspace: those of the mapping, or each file's own name.

    A text that begins with `data:` or `blob:` stands as it is. Raises OSError, and ValueError for two files of one
    name.
    """
    if isinstance(files, Mapping):
        return {path: _url(path, source) for path, source in files.items()}
    urls: dict[str, str] = {}
    for file in files:
        name = Path(file).name
        if name in urls:
            raise ValueError(f"two files are named {name}: give them as a mapping, by other paths")
        urls[name] = _url(name, file)
    return urls


def image_urls(images: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Return the images as URLs: files as `data:` URLs, what is a URL already as it stands. Raises OSError."""
    return [
        image
        if isinstance(image, str) and image.startswith(URL_PREFIXES)
        else data_url(str(image), Path(image).read_bytes())
        for image in images
    ]


def _url(path: str, source: Source) -> str:
    if isinstance(source, str) and source.startswith(("data:", "blob:")):
        return source
    return data_url(path, source if isinstance(source, bytes) else Path(source).read_bytes())


class RunBounds(TypedDict, total=False):
    """The bounds of a run, and the key under which it is requested."""

    max_steps: int
    deadline: float | timedelta | str
    """The time from now after which the run ends, with what it has found: seconds, or a text such as `10m`."""
    budget: Budget | Mapping[str, float]
    """The budget of the run and all runs below it together."""
    inputs: Mapping[str, Any]
    """Named values that the agent reads in addition to the task."""
    idempotency_key: str
    """The request's Idempotency-Key; without it each call has its own, which its retries share."""


class StartOptions(RunBounds, total=False):
    """The options of a new run in addition to the agent and the task."""

    files: Mapping[str, Source] | Iterable[str | os.PathLike[str]]
    """Files of its workspace: paths of local files, or path in the workspace -> file or content."""
    images: Iterable[str | os.PathLike[str]]
    """Images that the model sees: local files or URLs."""
    session: str
    """The conversation that it goes on with, or begins."""
    reset: bool
    """True: start the session afresh, without the memory of its earlier runs."""
    user: str
    """The person that it works for, whose memories its agents may share."""
    labels: Mapping[str, str]
    """Words of your own, by which it is found again."""


class ForkOptions(RunBounds, total=False):
    """The options that a fork may change; the others are as in the run that is forked."""

    task: str
    observations: Mapping[str, str]
    """Other outcomes for calls of the steps before, by `<step>_<index>` or call id."""


class WantedRuns(TypedDict, total=False):
    """The selection and the order of listed runs."""

    agent: str
    member: str
    """An agent that has a run in the tree: the root's, or one below it."""
    state: State
    waiting_for: str
    """`approval`, `model`, `time` or `signal NAME`."""
    session: str
    user: str
    parent: str
    """The runs directly below this one, instead of root runs."""
    since: float | datetime
    """Those that began at this time, in Unix seconds or as a datetime, or later."""
    until: float | datetime
    """Those that began before."""
    min_cost: float
    error: str
    """The type of the error that they ended with."""
    labels: Mapping[str, str | None]
    """The labels that the runs must have; None: with any value."""
    text: str
    """Words that all stand in the task or the answer; the last one may be the beginning of one."""
    sort: RunOrder
    limit: int
    """At most so many runs; all without it."""


def list_query(wanted: WantedRuns) -> dict[str, Any]:
    """Return the parameters of GET /v1/runs, but for `limit`."""
    query: dict[str, Any] = {name: value for name, value in wanted.items() if name != "limit"}
    for name in ("since", "until"):
        if isinstance(at := query.get(name), datetime):
            query[name] = at.timestamp()
    labels = query.pop("labels", None) or {}
    query["label"] = [name if value is None else f"{name}={value}" for name, value in labels.items()] or None
    return query


def start_body(agent: str, task: str, options: StartOptions, output_type: Any = None) -> dict[str, Any]:
    """Return the body of POST /v1/runs. Raises OSError for a file that cannot be read, SpecError for a type that JSON
    cannot carry."""
    _check_types(agent, task, options)
    body = {"agent": agent, "task": task, **_common(options)}
    if "files" in options:
        body["files"] = file_urls(options["files"])
    if "images" in options:
        body["images"] = image_urls(options["images"])
    if options.get("labels"):
        body["labels"] = dict(_mapping("labels", options["labels"], "{'name': 'value'}"))
    if output_type is not None:
        body["output_schema"] = answer_type(output_type).schema
    for name in ("session", "reset", "user"):
        if options.get(name) is not None:
            body[name] = options[name]
    return body


def _check_types(agent: Any, task: Any, options: Mapping[str, Any]) -> None:
    """Raise SpecError, which names the option, for a value that would be sent as something else."""
    for key, value in (("agent", agent), ("task", task)):
        if not isinstance(value, str):
            name = getattr(value, "name", None)
            hint = f": {name!r}" if isinstance(name, str) else ""
            raise SpecError(f"write a text, not {type(value).__name__}{hint}", key=key)
    for key in ("files", "images"):
        if isinstance(options.get(key), str | bytes | os.PathLike):
            raise SpecError(f"write a list: {key}=[{options[key]!r}]", key=key)


def fork_body(at: int, options: ForkOptions) -> dict[str, Any]:
    """Return the body of POST /v1/runs/{id}/fork."""
    body = {"at": at, **_common(options)}
    if options.get("task") is not None:
        body["task"] = options["task"]
    if "observations" in options:
        body["observations"] = dict(options["observations"])
    return body


def _common(options: RunBounds) -> dict[str, Any]:
    body: dict[str, Any] = {}
    if options.get("max_steps") is not None:
        body["max_steps"] = options["max_steps"]
    if options.get("deadline") is not None:
        after = options["deadline"]
        body["deadline"] = after.total_seconds() if isinstance(after, timedelta) else after
    if "budget" in options:
        given = _mapping("budget", options["budget"], "{'cost': 0.5}")
        bounds = msgspec.structs.asdict(made(Budget, given) if isinstance(given, Mapping) else given)
        body["budget"] = {name: most for name, most in bounds.items() if most is not None}
    if "inputs" in options:
        body["inputs"] = dict(_mapping("inputs", options["inputs"], "{'name': value}"))
    return body


def _mapping(key: str, value: Any, example: str) -> Any:
    """Return the mapping or struct. Raises SpecError, which shows how one is written."""
    if not isinstance(value, Mapping | msgspec.Struct):
        raise SpecError(f"write a mapping such as {example}, not {value!r}", key=key)
    return value

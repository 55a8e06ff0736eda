"""The file of an agent that stands for one of another make, elsewhere or a program here: `kind: RemoteAgent`."""

import re
import shlex
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from cadre.errors import SpecError
from cadre.protocol.a2a import remote_tools
from cadre.protocol.usage import Budget
from cadre.spec.durations import checked_seconds
from cadre.spec.kinds import Section
from cadre.structs import misfit_of

DOCUMENT = "RemoteAgent"
"""The `kind` of its file."""


Permissions = Literal["ask", "allow", "refuse"]
"""The answer to a permission that a program asks for: a person is asked, or it is always given, or never."""

Transport = Literal["JSONRPC 1.0", "HTTP+JSON 1.0", "JSONRPC 0.3", "HTTP+JSON 0.3"]
"""A binding of A2A and its version."""

_POLL_SECONDS, _POLL_NEAR_SECONDS = 15.0, 5.0
_TOKEN = re.compile(r"[^\s.*>$][^\s.*>]*")


class ProgramSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A program that speaks the Agent Client Protocol, and how it is started."""

    command: list[str]
    workspace: str
    """The folder that it works in; relative to that of the file."""
    folder_per_run: bool = False
    """True if each run works in its own folder below the workspace."""
    environment: dict[str, str] = {}
    """`${NAME}` and `${file:PATH}` stand for secrets of the executor. HOME, PATH and similar variables are added."""
    mcp_servers: str = ""
    """A file of MCP servers that the program is to connect to; "" for none."""
    permissions: Permissions = "ask"
    concurrency: int = 1
    """Runs that it works on at once, each in a separate process."""
    state: str = ""
    """The folder of what its executor knows of its tasks; "" for `.cadre/members/NAME` next to the file."""


class NatsAgentSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An agent on NATS that speaks Synadia's agent protocol, by what it says of itself."""

    agent: str
    owner: str
    session: str
    url: str = ""
    """The NATS server; "" for that of the deployment."""
    credentials: str = ""
    """The file of a NATS user's key, relative to the agent's file; "" for the executor's own."""


class RemoteSpec(Section, frozen=True, kw_only=True, omit_defaults=True):
    """The address of a remote agent, and how it is asked."""

    card: str = ""
    """URL of its card, which names the address."""
    url: str = ""
    """The address itself; no card is fetched then."""
    transport: Transport | Literal[""] = ""
    """The form of what is said there; "" for what the card prefers, and JSON-RPC 1.0 at a `url`."""
    headers: dict[str, str] = {}
    """Sent with each request. `${NAME}` and `${file:PATH}` stand for secrets of the executor."""
    idempotent: bool | None = None
    """True if a message that is sent again finds its task; None: as its card says."""
    poll: float = 15.0
    """Seconds between two questions for a task at most; the first ones follow sooner."""
    absence: float = 600.0
    """Seconds that it may be out of reach before the run fails."""
    program: ProgramSpec | None = None
    """In place of an address: a program that the executor starts."""
    nats: NatsAgentSpec | None = None
    """In place of an address: an agent on NATS."""


class _DocumentSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    description: str
    card: str = ""
    url: str = ""
    transport: Transport | Literal[""] = ""
    headers: dict[str, str] = {}
    idempotent: bool | None = None
    command: str | list[str] = ""
    nats: NatsAgentSpec | None = None
    workspace: str = ""
    folder_per_run: bool = False
    environment: dict[str, str] = {}
    mcp_servers: str = ""
    permissions: Permissions = "ask"
    concurrency: int | None = None
    state: str = ""
    poll: float | str | None = None
    absence: float | str = 600.0
    budget: Budget | None = None
    timeout: float | str = 3600.0
    """Of the whole task: how long a run may take."""
    version: str = ""
    input_schema: dict[str, Any] | None = None
    output_schema: dict[str, Any] | None = None


def agent_document(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """The document of an agent of this kind that a RemoteAgent's says. Raises SpecError."""
    written = data.get("spec")
    try:
        found = msgspec.convert(written, _DocumentSpec)
    except msgspec.ValidationError as error:
        misfit, known = misfit_of(error), ", ".join(_DocumentSpec.__struct_fields__)
        key = f"spec.{misfit.place}".rstrip(".")
        raise SpecError(f"{misfit.problem}; known keys: {known}", key=key) from error
    if [bool(found.card), bool(found.url), bool(found.command), found.nats is not None].count(True) != 1:
        raise SpecError(
            "give either the card of the remote agent, its url, the command of a program, or who it is on `nats`",
            key="spec",
        )
    _check_nats(found.nats)
    program = _program(found)
    for key in ("card", "url"):
        address = urlsplit(getattr(found, key))
        if getattr(found, key) and (address.scheme not in ("http", "https") or not address.hostname):
            raise SpecError(f"{getattr(found, key)!r} is no URL: write http:// or https://", key=f"spec.{key}")
    poll = found.poll if found.poll is not None else _POLL_NEAR_SECONDS if program or found.nats else _POLL_SECONDS
    metadata = data.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    section = {
        "card": found.card,
        "url": found.url,
        "transport": found.transport,
        "headers": found.headers,
        "idempotent": found.idempotent,
        "poll": checked_seconds("spec.poll", poll),
        "absence": checked_seconds("spec.absence", found.absence),
    }
    section |= {"program": msgspec.to_builtins(program)} if program is not None else {}
    section |= {"nats": msgspec.to_builtins(found.nats)} if found.nats is not None else {}
    spec: dict[str, Any] = {"kind": kind, "description": found.description, kind: section}
    limits: dict[str, Any] = {"seconds": checked_seconds("spec.timeout", found.timeout)}
    spec["limits"] = limits | ({"budget": msgspec.to_builtins(found.budget)} if found.budget else {})
    spec |= {"tools": remote_tools(name)} if isinstance(name, str) else {}
    spec |= {"version": found.version} if found.version else {}
    for key in ("input_schema", "output_schema"):
        spec |= {key: getattr(found, key)} if getattr(found, key) is not None else {}
    return {**data, "kind": "Agent", "spec": spec}


_OF_PROGRAMS = (
    "workspace",
    "folder_per_run",
    "environment",
    "mcp_servers",
    "permissions",
    "concurrency",
    "state",
)
_OF_ADDRESSES = ("headers", "transport")
_NOT_OF_PROGRAMS = (*_OF_ADDRESSES, "idempotent")
_MANY_RUNS = 4
"""Runs at once if each has its own folder."""


def _program(found: _DocumentSpec) -> ProgramSpec | None:
    defaults = _DocumentSpec(description="")
    strangers: tuple[str, ...] = _NOT_OF_PROGRAMS if found.command else _OF_PROGRAMS
    strangers += _OF_ADDRESSES if found.nats is not None else ()
    for key in strangers:
        if getattr(found, key) != getattr(defaults, key):
            is_programs = key in _OF_PROGRAMS
            what = "a program" if found.command else "on NATS"
            of_whom = "a program: name its command" if is_programs else f"an address, and this agent is {what}"
            raise SpecError(f"this is said of {of_whom}", key=f"spec.{key}")
    if not found.command:
        return None
    try:
        command = shlex.split(found.command) if isinstance(found.command, str) else found.command
    except ValueError as error:
        raise SpecError(str(error), key="spec.command") from error
    if not found.workspace:
        raise SpecError("name the folder that the program works in", key="spec.workspace")
    concurrency = found.concurrency if found.concurrency is not None else _MANY_RUNS if found.folder_per_run else 1
    if concurrency < 1:
        raise SpecError("give 1 or more", key="spec.concurrency")
    same = {key: getattr(found, key) for key in _OF_PROGRAMS if key != "concurrency"}
    return ProgramSpec(command=command, concurrency=concurrency, **same)


def _check_nats(nats: NatsAgentSpec | None) -> None:
    for key in ("agent", "owner", "session") if nats is not None else ():
        if not _TOKEN.fullmatch(getattr(nats, key)):
            raise SpecError(
                f"{getattr(nats, key)!r} is no word of a NATS subject: write it as `nats micro info agents` shows it",
                key=f"spec.nats.{key}",
            )

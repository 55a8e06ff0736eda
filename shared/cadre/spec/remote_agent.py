"""The file of an agent that stands for a remote one: `kind: RemoteAgent`."""

from typing import Any
from urllib.parse import urlsplit

import msgspec

from cadre.errors import SpecError
from cadre.protocol.a2a import remote_tools
from cadre.spec.durations import seconds_of
from cadre.spec.yaml_file import refused_key

DOCUMENT = "RemoteAgent"
"""The `kind` of its file."""


class RemoteSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a remote agent is, and how it is asked."""

    card: str = ""
    """URL of its card, which names the address."""
    url: str = ""
    """The address itself, where JSON-RPC is spoken; nobody asks for a card then."""
    headers: dict[str, str] = {}
    """Sent with each request. `${NAME}` and `${file:PATH}` stand for secrets of the executor."""
    idempotent: bool | None = None
    """Whether a message that is sent again finds its task; None: as its card says."""
    poll: float = 15.0
    """Seconds between two questions for a task at most; the first ones follow sooner."""
    absence: float = 600.0
    """Seconds that it may be out of reach before the run fails."""


class _DocumentSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    description: str
    card: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    idempotent: bool | None = None
    poll: float | str = 15.0
    absence: float | str = 600.0
    timeout: float | str = 3600.0
    """Of the whole task: how long a run may take."""
    version: str = ""
    output_schema: dict[str, Any] | None = None


def agent_document(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """The document of an agent of this kind that a RemoteAgent's says. Raises SpecError."""
    written = data.get("spec")
    try:
        found = msgspec.convert(written, _DocumentSpec)
    except msgspec.ValidationError as error:
        key, what = refused_key(error)
        known = ", ".join(_DocumentSpec.__struct_fields__)
        raise SpecError(f"spec{key and f'.{key}'}: {what}; known keys: {known}") from error
    if bool(found.card) == bool(found.url):
        raise SpecError("spec: give either the card of the remote agent or its url")
    for key in ("card", "url"):
        address = urlsplit(getattr(found, key))
        if getattr(found, key) and (address.scheme not in ("http", "https") or not address.hostname):
            raise SpecError(f"spec.{key}: {getattr(found, key)!r} is no URL: write http:// or https://")
    metadata = data.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    section = {
        "card": found.card,
        "url": found.url,
        "headers": found.headers,
        "idempotent": found.idempotent,
        "poll": _seconds("poll", found.poll),
        "absence": _seconds("absence", found.absence),
    }
    spec: dict[str, Any] = {"kind": kind, "description": found.description, kind: section}
    spec |= {"limits": {"seconds": _seconds("timeout", found.timeout)}}
    spec |= {"tools": remote_tools(name)} if isinstance(name, str) else {}
    spec |= {"version": found.version} if found.version else {}
    spec |= {"output_schema": found.output_schema} if found.output_schema is not None else {}
    return {**data, "kind": "Agent", "spec": spec}


def _seconds(key: str, length: float | str) -> float:
    try:
        return seconds_of(length)
    except ValueError as error:
        raise SpecError(f"spec.{key}: {error}") from error

"""The tables of the protocol page: subjects, messages, events."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from cadre.journal.unions import close
from cadre.protocol.codes import EDIT_REFUSALS, ERRORS, IGNORED
from cadre_gateway.doors.open_doors import rules_with
from cadre_gateway.requests.problems import TITLES
from generate.channels import CHANNELS, OPERATIONS
from generate.schemas import MESSAGES, tag_of

_SEEN = Path(__file__).parents[2] / "tests" / "clients" / "seen.json"


def subjects() -> str:
    rows = ["| channel | subject | kind | payload | sent by | received by |", "|---|---|---|---|---|---|"]
    for channel in CHANNELS:
        payload = ", ".join(message.__name__ for message in channel.messages) or "text"
        sent, received = (_who(channel.name, action) for action in ("send", "receive"))
        rows.append(f"| {channel.name} | `{channel.address}` | {channel.kind} | {payload} | {sent} | {received} |")
    return "\n".join(rows)


def messages() -> str:
    rows = ["| message | `type` | what it says | schema |", "|---|---|---|---|"]
    for message in MESSAGES:
        tag = f"`{tag_of(message)}`" if tag_of(message) else ""
        schema = f"[schema](protocol/schemas/{message.__name__}.json)"
        rows.append(f"| {message.__name__} | {tag} | {_doc(message)} | {schema} |")
    return "\n".join(rows)


def events() -> str:
    rows = ["| event | fields | what it says |", "|---|---|---|"]
    for event in close().events:
        fields = ", ".join(f"`{field.encode_name}`" for field in msgspec.structs.fields(event))
        rows.append(f"| `{tag_of(event)}` | {fields} | {_doc(event)} |")
    return "\n".join(rows)


def error_codes() -> str:
    rows = ["| `code` | `type` | when |", "|---|---|---|"]
    rows += [f"| `{code}` | `{kind.type}` | {kind.meaning} |" for code, kind in ERRORS.items()]
    return "\n".join(rows)


def ignored_codes() -> str:
    return _codes(IGNORED)


def edit_codes() -> str:
    return _codes(EDIT_REFUSALS)


def _codes(meanings: Mapping[Any, str]) -> str:
    return "\n".join(["| `code` | when |", "|---|---|", *(f"| `{c}` | {text} |" for c, text in meanings.items())])


def clients() -> str:
    """Return the clients that their suite has last seen: see tests/clients/conftest.py."""
    rows = ["| client | version | for | door | seen to work |", "|---|---|---|---|---|"]
    for one in json.loads(_SEEN.read_text()):
        language = "Node.js" if one["package"].startswith("npm:") else "Python"
        name = one["package"].removeprefix("npm:").removesuffix("-0")
        doors, shows = ", ".join(one["doors"]), ", ".join(one["shows"])
        rows.append(f"| `{name}` | {one['version']} | {language} | {doors} | {shows} |")
    return "\n".join(rows)


_SCOPES = {
    "none": "no matter",
    "run": "the run",
    "tree": "its whole tree",
    "call": "the call's tree",
    "all": "refused",
    "handler": "left out, or refused",
}
"""What is held to a key's scope, in words."""


def rights() -> str:
    rows = ["| route | right | with a scope |", "|---|---|---|"]
    for rule in rules_with([]).rules:
        scope = _SCOPES[rule.scope] if rule.right != "public" else ""
        rows.append(f"| `{rule.method} {rule.path}` | {rule.right} | {scope} |")
    return "\n".join(rows)


def _who(channel: str, action: str) -> str:
    """The first word of an operation's name says who."""
    who = [
        "".join(letter if letter.islower() else " " for letter in operation.name).split()[0]
        for operation in OPERATIONS
        if operation.channel == channel and operation.action == action
    ]
    return ", ".join(dict.fromkeys(who))


def _doc(struct: type[msgspec.Struct]) -> str:
    text = struct.__dict__.get("__doc__") or ""
    return " ".join(text.split()).replace("|", "\\|")


def event_names() -> str:
    """Return the names of all events of a journal."""
    return ", ".join(f"`{tag_of(event)}`" for event in close().events)


def problems() -> str:
    """Return the table of the codes of problems."""
    return "\n".join(
        ["| `code` | title |", "|---|---|", *(f"| `{code}` | {title} |" for code, title in TITLES.items())]
    )

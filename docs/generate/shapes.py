"""The form of what the HTTP API answers, field by field, as lines of code for its page."""

import textwrap
from collections.abc import Callable
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UnsetType

from cadre.api.directory import (
    IndexState,
    LiveAgent,
    LiveSandbox,
    LiveTool,
    Load,
    Replica,
    RolloutChange,
    RolloutView,
    ServiceQueue,
)
from cadre.api.runs import Accepted, Approval, RunDetail, RunResult, RunSummary, SentRequest, TraceTree
from cadre.journal.unions import close
from cadre.protocol.deltas import Delta
from cadre.tools.workspace import FileEntry
from cadre.views.rows import Line, Row, RowsChanged
from cadre_gateway.requests.body import RulingBody
from cadre_gateway.routes.openapi import ProblemDocument
from cadre_gateway.routes.time_travel import ReplayAnswer, VerifyAnswer
from cadre_gateway.starting.fork import ForkBody
from cadre_gateway.steering.run_end import Gone
from cadre_gateway.streaming.event_stream import Shown
from cadre_gateway.transfer.import_run import Arrived

Struct = type[msgspec.Struct]

_WIDTH = 120

_MAX_WORDS = 4
"""Of a field that has one of more words, these stand in the page's text."""

_SHAPES: dict[str, tuple[Struct, Struct | None]] = {
    "a run that was started": (Accepted, None),
    "the result of a run": (RunResult, None),
    "a run of the list": (RunSummary, None),
    "one run": (RunDetail, RunSummary),
    "an event": (Shown, None),
    "a delta": (Delta, None),
    "rows": (RowsChanged, None),
    "a row": (Row, None),
    "a line": (Line, None),
    "a trace": (TraceTree, None),
    "a request": (SentRequest, None),
    "a replay": (ReplayAnswer, None),
    "a verification": (VerifyAnswer, None),
    "a fork": (ForkBody, None),
    "an approval": (Approval, None),
    "a ruling": (RulingBody, None),
    "a file": (FileEntry, None),
    "an erased run": (Gone, None),
    "an imported run": (Arrived, None),
    "an agent": (LiveAgent, None),
    "a tool": (LiveTool, None),
    "a sandbox": (LiveSandbox, None),
    "a queue": (ServiceQueue, None),
    "a replica": (Replica, None),
    "a rollout": (RolloutView, None),
    "a change of a rollout": (RolloutChange, None),
    "the load": (Load, None),
    "the index": (IndexState, None),
    "a problem": (ProblemDocument, None),
}
"""What stands on the page, by the name of its block; where there are two, what the first has beyond the second."""

_BY_THEMSELVES = (RunDetail, Replica)
"""What has a block of its own wherever it is part of another."""


def blocks() -> dict[str, Callable[[], str]]:
    """The blocks of the page."""
    return {name: lambda shown=shown: _lines(*shown) for name, shown in _SHAPES.items()}  # type: ignore[misc]


def shape(kind: Struct, without: Struct | None = None) -> str:
    """The fields of a struct, those of structs in it too; `?` marks those that may be missing."""
    close()
    hints = get_type_hints(kind, include_extras=False)
    known = without.__struct_fields__ if without is not None else ()
    may_lack = kind.__struct_config__.omit_defaults or kind.__struct_config__.forbid_unknown_fields
    fields = [
        _field(field.encode_name, hints[field.name], may_lack and not field.required)
        for field in msgspec.structs.fields(kind)
        if field.name not in known
    ]
    return "{" + ", ".join(fields) + "}"


def _lines(kind: Struct, without: Struct | None) -> str:
    wrapped = textwrap.wrap(shape(kind, without), _WIDTH - 5, break_long_words=False, break_on_hyphens=False)
    return "\n".join(f"    {' ' * (number > 0)}{line}" for number, line in enumerate(wrapped))


def _field(name: str, kind: Any, may_lack: bool) -> str:
    parts = _parts(kind)
    value = _value(parts)
    return f"{name}{'?' * (may_lack or UnsetType in parts)}" + (f": {value}" if value else "")


def _value(parts: list[Any]) -> str:
    """What is told of a value beyond its name; "" for plain ones."""
    structs = [part for part in parts if isinstance(part, type) and issubclass(part, msgspec.Struct)]
    words = [word for part in parts if get_origin(part) is Literal for word in get_args(part)]
    or_null = " | null" * (NoneType in parts)
    if structs:
        return _one_of(structs) + or_null
    if 0 < len(words) <= _MAX_WORDS:
        return " | ".join(f'"{word}"' for word in words) + or_null
    for part in parts:
        origin, inside = get_origin(part), get_args(part)
        if origin is list and (value := _value(_parts(inside[0]))):
            return f"[{value}]"
        if origin is dict and (value := _value(_parts(inside[1]))):
            return f"{{NAME: {value}}}"
    return ""


def _one_of(structs: list[Struct]) -> str:
    if len(structs) > 1:
        return "{type, …}"
    return "{…}" if structs[0] in _BY_THEMSELVES else shape(structs[0])


def _parts(kind: Any) -> list[Any]:
    """The alternatives of a type."""
    if get_origin(kind) is Annotated:
        return _parts(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return [part for one in get_args(kind) for part in _parts(one)]
    return [kind]

"""The unions of the journal: the types of fields to which each kind of agent adds classes.

The structs name their unions as strings, and msgspec reads such a name when a struct is first used. So nothing of the
kinds is loaded by an import, and `close` comes before every use: what makes a journal's types of bytes or of JSON
values goes through it, here or in `cadre.delivery.codec`. Without it msgspec raises NameError.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar, Union, get_args

import msgspec

from cadre.errors import KindError
from cadre.journal import arrivals, entry, run
from cadre.journal.events import CommonEvent
from cadre.journal.parts import JournalEvent, KindState, KindStep
from cadre.protocol.messages import Message, Record
from cadre.protocol.usage import TokenUsage, Usage
from cadre.spec.agent import file_fields
from cadre.spec.kinds import CLOSING, Section, declared_kinds, once

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

_REPLIES = (arrivals.ModelReplied, arrivals.ModelFailed, arrivals.ModelLost, arrivals.Poisoned)


class Unions(NamedTuple):
    """The members of the unions."""

    events: tuple[type[JournalEvent], ...]
    """Every event that a journal may hold."""
    records: tuple[type[msgspec.Struct], ...]
    """Every record that an agent's inbox may hold."""
    record: Any
    """Their union."""
    steps: Mapping[str, type[KindStep]]
    """The kinds' parts of action steps, by the kinds' names."""


@once
def close() -> Unions:
    """Load the kinds, close the unions and have msgspec read every class in them. Later calls only return them.

    Raises KindError for a kind that cannot be loaded.
    """
    file_fields()  # it closes the union of the kinds' sections
    notes = {str(step.__struct_config__.tag): step for step in _of(KindStep)}
    events: tuple[type[JournalEvent], ...] = (
        *get_args(CommonEvent),
        *dict.fromkeys(_of(JournalEvent)),
    )
    records: tuple[type[msgspec.Struct], ...] = (
        *get_args(Record),
        *(event.copies for event in events if event.copies is not None),
    )
    for module, name, types in (
        (entry, "AnyEvent", events),
        (arrivals, "AnyRecord", records),
        (run, "AnyKindState", _of(KindState)),
        (run, "AnyKindStep", notes.values()),
    ):
        setattr(module, name, Union[tuple(types)])  # noqa: UP007 - made at run time
    for read in (entry.Entry, run.Run, *records, *_REPLIES):
        msgspec.json.Decoder(read)
    return Unions(events, records, arrivals.AnyRecord, notes)


def _of(base: type[S]) -> list[type[S]]:
    """Return the kinds' records of this base. Raises KindError for a record of no base that records have."""
    found: list[type[S]] = []
    for kind in declared_kinds().values():
        for record in kind.records:
            if not issubclass(record, (JournalEvent, KindState, KindStep, Section)):
                raise KindError(
                    "kind-invalid",
                    f"the kind {kind.name!r} declares {record.__name__} as a record: make it a JournalEvent, KindState,"
                    " KindStep or Section",
                )
            if issubclass(record, base):
                found.append(record)
    return found


_read = set[Any]()


def converted(value: Any, kind: type[T]) -> T:
    """Make a journal's type, or one that holds such types, of JSON values. Raises msgspec.ValidationError."""
    if kind not in _read:
        close()
        with CLOSING:
            msgspec.json.Decoder(kind)
        _read.add(kind)
    return msgspec.convert(value, kind)


def event_from(fields: Any) -> JournalEvent:
    """Make an event of its fields, in JSON types. Raises msgspec.ValidationError."""
    close()
    event: JournalEvent = msgspec.convert(fields, entry.AnyEvent)
    return event


def fields_of(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Return the fields of a journal's struct with their types, those of the kinds among them."""
    close()
    return msgspec.structs.fields(kind)


def whole(value: msgspec.Struct) -> dict[str, Any]:
    """Return an event or message with all its fields, of which journals leave out those that have their defaults."""
    config = value.__struct_config__
    fields: dict[str, Any] = {name: getattr(value, name) for name in value.__struct_fields__}
    for name, one in fields.items():
        if isinstance(one, Message):
            fields[name] = whole(one)
        elif isinstance(one, TokenUsage):
            fields[name] = Usage() + one
    return {str(config.tag_field): config.tag} | fields

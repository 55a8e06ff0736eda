"""What may be seen and what is asked for, as one tree of conditions that each store's filter is made from.

What a request may touch is decided here, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from cadre_memory.index.schema import NAMED, OWNER, OWNER_OF, owner
from cadre_memory.index.vector_index import Clause, EmbedState, IndexRefused, Where, Within


class Equal(msgspec.Struct, frozen=True):
    """Points whose field has this value."""

    field: str
    value: str


class OneOf(msgspec.Struct, frozen=True):
    """Points whose field has one of these values."""

    field: str
    values: list[str]


class Between(msgspec.Struct, frozen=True):
    """Points whose field is in a range, both ends included; a point without the field is outside."""

    field: str
    least: float | None = None
    most: float | None = None


class Ids(msgspec.Struct, frozen=True):
    """Points with one of these ids; none of them means no point."""

    ids: list[str]


class Not(msgspec.Struct, frozen=True):
    """Points that do not fit the part."""

    part: Condition


class AnyOf(msgspec.Struct, frozen=True):
    """Points that fit one of the parts. It is never empty: an engine's empty `should` lets everything through."""

    parts: list[Condition]


class AllOf(msgspec.Struct, frozen=True):
    """Points that fit all of the parts; without parts, every point."""

    parts: list[Condition]


Condition = Equal | OneOf | Between | Ids | Not | AnyOf | AllOf

NOTHING = Ids([])


class PointSelector(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Selects points of a collection: those that fit all that is given."""

    within: Within | None = None
    """What may be seen; None only for the index's own housekeeping."""
    where: Where = Where()
    ids: list[str] | None = None
    state: EmbedState | None = None
    expired_by: float | None = None


def condition_of(selector: PointSelector) -> Condition:
    """Returns the selector as one condition. Raises IndexRefused for a clause that lets through more than was meant."""
    parts: list[Condition] = []
    if selector.within is not None:
        parts += [visible(selector.within), *_unexpired(selector.within.at)]
    parts += _asked(selector.where)
    if selector.ids is not None:
        parts.append(Ids(selector.ids))
    if selector.state is not None:
        parts.append(Equal("embed_state", selector.state))
    if selector.expired_by is not None:
        parts.append(Between("expires_at", most=selector.expired_by))
    return AllOf(parts)


def visible(within: Within) -> Condition:
    """Returns the clauses alone as a condition.

    It is also the corpus that a word's rarity is counted in, so that no owner learns of another's memories.
    """
    return AnyOf([_clause(one) for one in within.any_of]) if within.any_of else NOTHING


def _clause(clause: Clause) -> Condition:
    if not clause.equals:
        raise IndexRefused("a clause without a field would show every memory: name what it is limited to")
    for field, value in clause.equals.items():
        if field not in NAMED:
            raise IndexRefused(f"no clause can name {field!r}: it must be one of {', '.join(sorted(NAMED))}")
        if not value:
            raise IndexRefused(
                f"a clause with an empty {field!r} would show memories that have none: leave it out"
            )
    parts: list[Condition] = [Equal(field, value) for field, value in clause.equals.items()]
    scope = clause.equals.get("scope", "")
    for known, field in OWNER_OF.items():
        # A session's name alone selects all sessions of that name, whatever their agents and persons.
        if known == scope != "session" and field in clause.equals:
            parts.append(Equal(OWNER, owner(scope, clause.equals[field])))
    return AllOf(parts)


def _unexpired(at: float | None) -> list[Condition]:
    # What never expires has no number there, and is in no range.
    return [] if at is None else [Not(Between("expires_at", most=at))]


def _asked(where: Where) -> list[Condition]:
    parts: list[Condition] = []
    if where.kinds:
        parts.append(OneOf("kind", where.kinds))
    if where.other_than:
        parts.append(Not(OneOf("kind", where.other_than)))
    if where.agents:
        parts.append(OneOf("agent", where.agents))
    if where.memory is not None:
        parts.append(Equal("memory", where.memory))
    if where.memories is not None:
        parts.append(OneOf("memory", where.memories) if where.memories else NOTHING)
    if where.ids is not None:
        parts.append(Ids(where.ids))
    if where.since is not None or where.until is not None:
        parts.append(Between("created_at", least=where.since, most=where.until))
    return parts


def admits(condition: Condition, id: str, payload: Mapping[str, Any]) -> bool:
    """Returns whether a point fits, decided without any engine."""
    match condition:
        case Equal(field, value):
            return bool(payload.get(field) == value)
        case OneOf(field, values):
            return payload.get(field) in values
        case Between(field, least, most):
            found = payload.get(field)
            return found is not None and (least is None or found >= least) and (most is None or found <= most)
        case Ids(ids):
            return id in ids
        case Not(part):
            return not admits(part, id, payload)
        case AnyOf(parts):
            return any(admits(part, id, payload) for part in parts)
        case AllOf(parts):
            return all(admits(part, id, payload) for part in parts)

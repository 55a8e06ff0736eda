"""A tree of conditions as the embedded engine's filter."""

from __future__ import annotations

from uuid import UUID

from qdrant_edge import (
    FieldCondition,
    Filter,
    HasIdCondition,
    MatchAny,
    MatchValue,
    RangeFloat,
)

from cadre_memory.index.filters import AllOf, AnyOf, Between, Equal, Ids, Not, OneOf, Tree

EdgeCondition = FieldCondition | HasIdCondition | Filter


def edge_filter(tree: Tree) -> Filter:
    return Filter(must=[_condition(tree)])


def _condition(tree: Tree) -> EdgeCondition:
    match tree:
        case Equal(field, value):
            return FieldCondition(key=field, match=MatchValue(value=value))
        case OneOf(field, values):
            return FieldCondition(key=field, match=MatchAny(any=values))
        case Between(field, least, most):
            return FieldCondition(key=field, range=RangeFloat(gte=least, lte=most))
        case Ids(ids):
            return HasIdCondition(point_ids={UUID(id) for id in ids})
        case Not(part):
            return Filter(must_not=[_condition(part)])
        case AnyOf(parts):
            return Filter(should=[_condition(part) for part in parts])
        case AllOf(parts):
            return Filter(must=[_condition(part) for part in parts])

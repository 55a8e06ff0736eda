"""A tree of conditions as a filter of Qdrant's REST interface."""

from __future__ import annotations

from qdrant_client import models

from cadre_memory.index.filters import AllOf, AnyOf, Between, Equal, Ids, Not, OneOf, Tree


def rest_filter(tree: Tree) -> models.Filter:
    return models.Filter(must=[_condition(tree)])


def _condition(tree: Tree) -> models.Condition:
    match tree:
        case Equal(field, value):
            return models.FieldCondition(key=field, match=models.MatchValue(value=value))
        case OneOf(field, values):
            return models.FieldCondition(key=field, match=models.MatchAny(any=values))
        case Between(field, least, most):
            return models.FieldCondition(key=field, range=models.Range(gte=least, lte=most))
        case Ids(ids):
            return models.HasIdCondition(has_id=list(ids))
        case Not(part):
            return models.Filter(must_not=[_condition(part)])
        case AnyOf(parts):
            return models.Filter(should=[_condition(part) for part in parts])
        case AllOf(parts):
            return models.Filter(must=[_condition(part) for part in parts])

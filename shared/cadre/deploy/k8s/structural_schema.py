"""Turn structs into structural schemas of Kubernetes: OpenAPI v3 without references, where every node has one type."""

import ast
import inspect
import textwrap
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import inspect as shapes

from cadre.protocol.usage import LENGTH_OF_TIME

Schema = dict[str, Any]

_ANYTHING: Schema = {"x-kubernetes-preserve-unknown-fields": True}
"""The schema of a value that may have one of several types, which a structural schema cannot express."""


def structural(struct: type[msgspec.Struct], without: Sequence[str] = ()) -> Schema:
    """Return the schema of a struct's fields, but for those in `without`; a struct within itself is left out."""
    shape = shapes.type_info(struct)
    assert isinstance(shape, shapes.StructType)
    return _of_struct(shape, without, (struct,))


def _of_struct(shape: shapes.StructType, without: Sequence[str], around: tuple[type, ...]) -> Schema:
    told = {name: text for one in reversed(shape.cls.__mro__) for name, text in _docstrings(one).items()}
    properties: dict[str, Schema] = {}
    for field in shape.fields:
        schema = None if field.name in without else _of_type(field.type, around)
        if schema is not None:
            about = {"description": told[field.name]} if field.name in told else {}
            properties[field.encode_name] = about | schema
    required = [field.encode_name for field in shape.fields if field.required and field.name not in without]
    return {"type": "object", "properties": properties} | ({"required": required} if required else {})


def _of_type(shape: shapes.Type, around: tuple[type, ...]) -> Schema | None:
    """Return the schema of a type; None where a struct would hold itself."""
    match shape:
        case shapes.UnionType(types=types):
            return _of_union(types, around)
        case shapes.StructType(cls=struct):
            return None if struct in around else _of_struct(shape, (), (*around, struct))
        case shapes.DictType(value_type=value):
            inner = _of_type(value, around)
            return inner and {"type": "object", "additionalProperties": inner}
        case shapes.ListType(item_type=item) | shapes.VarTupleType(item_type=item):
            inner = _of_type(item, around)
            return inner and {"type": "array", "items": inner}
        case shapes.LiteralType(values=values):
            return {"type": "string", "enum": [*values]}
        case shapes.IntType(ge=least):
            return {"type": "integer", "format": "int64"} | ({} if least is None else {"minimum": least})
        case shapes.Metadata(extra=dict(extra)) if LENGTH_OF_TIME in extra:
            return dict(_ANYTHING)
        case shapes.Metadata(type=inner):
            return _of_type(inner, around)
        case shapes.FloatType():
            return {"type": "number"}
        case shapes.BoolType():
            return {"type": "boolean"}
        case shapes.StrType():
            return {"type": "string"}
        case shapes.DateTimeType():
            return {"type": "string", "format": "date-time"}
        case _:
            return dict(_ANYTHING)


def _of_union(types: Sequence[shapes.Type], around: tuple[type, ...]) -> Schema | None:
    some = [one for one in types if not isinstance(one, shapes.NoneType)]
    schema = _of_type(some[0], around) if len(some) == 1 else dict(_ANYTHING)
    return schema and (schema | ({"nullable": True} if len(some) < len(types) else {}))


def _docstrings(struct: type) -> dict[str, str]:
    """Return the docstrings below the fields of a class in its source; empty without a source."""
    try:
        source = textwrap.dedent(inspect.getsource(struct))
    except (OSError, TypeError):
        return {}
    [body] = [one.body for one in ast.parse(source).body if isinstance(one, ast.ClassDef)]
    told: dict[str, str] = {}
    for field, below in pairwise(body):
        is_text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if is_text and isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            told[field.target.id] = " ".join(str(below.value.value).split())  # type: ignore[attr-defined]
    return told

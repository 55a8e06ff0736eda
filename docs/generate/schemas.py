"""JSON Schemas of all messages, made from their definitions in the library."""

import ast
import functools
import inspect
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, get_args

import msgspec

from cadre.journal.entry import Entry
from cadre.journal.unions import close
from cadre.protocol import cards, deltas, messages
from cadre.protocol.files import WorkspaceFile
from cadre.structs import prose_of

MESSAGES: tuple[type[msgspec.Struct], ...] = (
    *get_args(messages.Record),
    messages.ToolCall,
    messages.CodeCall,
    messages.EffectClaim,
    messages.EffectResult,
    WorkspaceFile,
    messages.Spilled,
    deltas.Delta,
    deltas.StreamChunk,
    cards.Presence,
    Entry,
)
"""Everything that stands alone in a payload."""


DIALECT = "https://json-schema.org/draft/2020-12/schema"


def components(types: Iterable[type[msgspec.Struct]], ref: str) -> dict[str, Any]:
    """Schemas by type name of the given types and all that they use; `ref` is where `{name}` will stand."""
    close()
    wanted = list(types)
    _, found = msgspec.json.schema_components(wanted, ref_template=ref)
    structs = {struct.__name__: struct for struct in _reachable(wanted)}
    for name, schema in found.items():
        if name in structs:
            if "description" in schema:
                schema["description"] = prose_of(schema["description"])
            _explain_fields(structs[name], schema)
    return {name: _plain(found[name]) for name in sorted(found)}


def schema_of(message: type[msgspec.Struct]) -> dict[str, Any]:
    """One self-contained JSON Schema."""
    parts = components([message], "#/$defs/{name}")
    top = parts.pop(message.__name__)
    return {"$schema": DIALECT, **top, **({"$defs": parts} if parts else {})}


def tag_of(message: type[msgspec.Struct]) -> str:
    """The `type` that a message says it is; empty for those that its subject alone tells."""
    return str(message.__struct_config__.tag or "")


def _plain(value: Any) -> Any:
    """Without OpenAPI's discriminator object, which neither JSON Schema nor AsyncAPI knows: each
    alternative names its own `type`."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items() if key != "discriminator"}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return value


def _reachable(types: Iterable[type[msgspec.Struct]]) -> Iterator[type[msgspec.Struct]]:
    todo, seen = list(types), set[object]()
    while todo:
        kind = todo.pop()
        if kind in seen:
            continue
        seen.add(kind)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            yield kind
            todo += [field.type for field in msgspec.structs.fields(kind)]
        else:
            todo += list(get_args(kind))


def _explain_fields(struct: type[msgspec.Struct], schema: dict[str, Any]) -> None:
    """Adds the texts that stand under fields in the source, those of inherited fields too."""
    for base in struct.__mro__:
        if base in (msgspec.Struct, object) or not issubclass(base, msgspec.Struct):
            continue
        for name, text in _texts(base).items():
            field = schema["properties"].get(name)
            if field is None or "description" in field:
                continue
            field["description"] = text


@functools.cache
def _texts(struct: type) -> dict[str, str]:
    body = ast.parse(textwrap.dedent(inspect.getsource(struct))).body[0]
    assert isinstance(body, ast.ClassDef)
    texts: dict[str, str] = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        ):
            texts[field.target.id] = " ".join(text.value.value.split())
    return texts

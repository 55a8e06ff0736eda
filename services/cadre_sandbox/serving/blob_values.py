"""Values of the code on the bus: bytes, images, tables and arrays go to the blob store, their references travel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from cadre.ports import Blobs
from cadre.protocol.messages import FileInfo
from cadre_sandbox.wire.values import (
    ESCAPE,
    FILE,
    FORMS,
    MARK,
    MARKS,
    MOST_BYTES,
    REF,
    Form,
    Given,
    GivenFile,
    Value,
    pack,
)


async def to_json(value: Value, blobs: Blobs) -> Any:
    """The value as JSON; what JSON does not have stands there as `{"$given": [form, "blob:…"]}`, a file as
    `{"$file": {"ref": "blob:…", …}}`. Raises RetryableError.

    A dict of the code's own that has such a key comes as `{"$dict": …}`.
    """
    data: list[bytes] = []
    packed = pack(value, data)
    return _named(packed, [await blobs.put(one) for one in data])


async def from_json(value: Any, blobs: Blobs, *, open_files: bool = True) -> Value:
    """The value of such JSON, whoever wrote it: what only looks a little like a reference is what it is.

    Raises BlobMissing, RetryableError.
    """
    data = {ref: await blobs.get(ref) for ref in sorted(set(_refs(value, open_files)))}
    return _valued(value, data)


def _named(packed: Any, refs: list[str]) -> Any:
    """With references in the place of positions."""
    if isinstance(packed, list):
        return [_named(item, refs) for item in packed]
    if not isinstance(packed, dict):
        return packed
    if packed.keys() == {MARK}:
        form, place = packed[MARK]
        return {MARK: [form, refs[place]]}
    if packed.keys() == {FILE}:
        ref, media_type, name, size, _ = packed[FILE]
        return {FILE: msgspec.to_builtins(FileInfo(ref=ref, media_type=media_type, name=name, size=size))}
    if (inner := _escaped(packed)) is not None:
        return {ESCAPE: {key: _named(item, refs) for key, item in inner.items()}}
    return {key: _named(item, refs) for key, item in packed.items()}


def _valued(value: Any, data: Mapping[str, bytes]) -> Value:
    if isinstance(value, list):
        return [_valued(item, data) for item in value]
    if not isinstance(value, dict):
        plain: Value = value
        return plain
    if (reference := _reference(value)) is not None:
        form, ref = reference
        return Given(form, data[ref])
    if (info := _file(value)) is not None:
        return GivenFile(info.ref, info.media_type, info.name, info.size, data.get(info.ref))
    inner = _escaped(value)
    return {key: _valued(item, data) for key, item in (value if inner is None else inner).items()}


def _refs(value: Any, open_files: bool) -> Iterator[str]:
    """Of what is needed to make the value."""
    if isinstance(value, list):
        for item in value:
            yield from _refs(item, open_files)
    elif not isinstance(value, dict):
        return
    elif (reference := _reference(value)) is not None:
        yield reference[1]
    elif (info := _file(value)) is not None:
        if open_files and info.size <= MOST_BYTES:
            yield info.ref
    else:
        for item in (_escaped(value) or value).values():
            yield from _refs(item, open_files)


def _reference(value: dict[str, Any]) -> tuple[Form, str] | None:
    match value:
        case {"$given": [str(form), str(ref)]} if len(value) == 1 and REF.fullmatch(ref):
            return next(((known, ref) for known in FORMS if known == form), None)
    return None


def _file(value: dict[str, Any]) -> FileInfo | None:
    if value.keys() != {FILE}:
        return None
    try:
        info = msgspec.convert(value[FILE], FileInfo)
    except msgspec.ValidationError:
        return None
    return info if REF.fullmatch(info.ref) and info.size >= 0 else None


def _escaped(value: dict[str, Any]) -> dict[str, Any] | None:
    """The dict that is meant, when this one stands for it."""
    inner = value.get(ESCAPE) if len(value) == 1 else None
    return inner if isinstance(inner, dict) and not MARKS.isdisjoint(inner) else None

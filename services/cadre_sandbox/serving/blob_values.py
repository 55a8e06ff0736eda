"""Values of the code on the bus: bytes, images, tables, arrays and what is large go to the blob store, their references
travel."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from cadre.ports import Blobs
from cadre.protocol.messages import FileInfo
from cadre_sandbox.wire.values import (
    BINARY_FORMS,
    BINARY_MARKER,
    BLOB_REF,
    ESCAPE_MARKER,
    FILE_MARKER,
    FORMS,
    MARKERS,
    MAX_BINARY_BYTES,
    BinaryForm,
    BinaryValue,
    FileValue,
    TaggedValue,
    Value,
    pack,
)


async def to_json(value: Value, blobs: Blobs) -> Any:
    """The value as JSON, with the bytes stored as blobs. Raises RetryableError.

    What JSON does not have stands there as `{"$given": [form, "blob:…"]}` or `{"$given": [form, content]}`, a file as
    `{"$file": {"ref": "blob:…", …}}`.
    A dict of the code's own that has such a key comes as `{"$dict": …}`.
    """
    data: list[bytes] = []
    if not isinstance(value, list | dict):
        return _with_references(pack(value, data), [await blobs.put(one) for one in data])
    # There may be a million items: other runs go on meanwhile.
    packed = await asyncio.to_thread(pack, value, data)
    refs = [await blobs.put(one) for one in data]
    return await asyncio.to_thread(_with_references, packed, refs)


async def from_json(value: Any, blobs: Blobs, *, open_files: bool = True) -> Value:
    """The value that such JSON stands for. Anybody may have written it: what only looks a little like a reference is
    left as it is.

    With `open_files` the content of files is fetched too. Raises BlobMissing, RetryableError.
    """
    data = {ref: await blobs.get(ref) for ref in sorted(set(_needed_references(value, open_files)))}
    return _with_data(value, data)


def _with_references(packed: Any, refs: list[str]) -> Any:
    """The packed value with references in the place of positions."""
    if isinstance(packed, list):
        return [_with_references(item, refs) for item in packed]
    if not isinstance(packed, dict):
        return packed
    if packed.keys() == {BINARY_MARKER}:
        form, *places = packed[BINARY_MARKER]
        if form in FORMS:
            return {BINARY_MARKER: [form, _with_references(places[0], refs)]}
        return {BINARY_MARKER: [form, *(refs[place] for place in places)]}
    if packed.keys() == {FILE_MARKER}:
        ref, media_type, name, size, _ = packed[FILE_MARKER]
        return {
            FILE_MARKER: msgspec.to_builtins(FileInfo(ref=ref, media_type=media_type, name=name, size=size))
        }
    if (inner := _escaped(packed)) is not None:
        return {ESCAPE_MARKER: {key: _with_references(item, refs) for key, item in inner.items()}}
    return {key: _with_references(item, refs) for key, item in packed.items()}


def _with_data(value: Any, data: Mapping[str, bytes]) -> Value:
    if isinstance(value, list):
        return [_with_data(item, data) for item in value]
    if not isinstance(value, dict):
        plain: Value = value
        return plain
    if (reference := _reference(value)) is not None:
        form, *refs = reference
        return BinaryValue(form, *(data[ref] for ref in refs))
    if (tagged := _tagged(value)) is not None:
        form_name, content = tagged
        return TaggedValue(form_name, _with_data(content, data))
    if (info := _file(value)) is not None:
        return FileValue(info.ref, info.media_type, info.name, info.size, data.get(info.ref))
    inner = _escaped(value)
    return {key: _with_data(item, data) for key, item in (value if inner is None else inner).items()}


def _needed_references(value: Any, open_files: bool) -> Iterator[str]:
    """The references that are needed to make the value."""
    if isinstance(value, list):
        for item in value:
            yield from _needed_references(item, open_files)
    elif not isinstance(value, dict):
        return
    elif (reference := _reference(value)) is not None:
        yield from reference[1:]
    elif (info := _file(value)) is not None:
        if open_files and info.size <= MAX_BINARY_BYTES:
            yield info.ref
    else:
        for item in (_escaped(value) or value).values():
            yield from _needed_references(item, open_files)


def _reference(value: dict[str, Any]) -> tuple[BinaryForm, *tuple[str, ...]] | None:
    match value:
        case {"$given": [str(form), str(ref), *more]} if len(value) == 1 and len(more) <= 1:
            refs = (ref, *more)
            if all(isinstance(one, str) and BLOB_REF.fullmatch(one) for one in refs):
                return next(((known, *refs) for known in BINARY_FORMS if known == form), None)
    return None


def _tagged(value: dict[str, Any]) -> tuple[str, Any] | None:
    match value:
        case {"$given": [str(form), content]} if len(value) == 1 and form in FORMS and FORMS[form](content):
            return form, content
    return None


def _file(value: dict[str, Any]) -> FileInfo | None:
    if value.keys() != {FILE_MARKER}:
        return None
    try:
        info = msgspec.convert(value[FILE_MARKER], FileInfo)
    except msgspec.ValidationError:
        return None
    return info if BLOB_REF.fullmatch(info.ref) and info.size >= 0 else None


def _escaped(value: dict[str, Any]) -> dict[str, Any] | None:
    """The dict that is meant, when this one stands for it; else None."""
    inner = value.get(ESCAPE_MARKER) if len(value) == 1 else None
    return inner if isinstance(inner, dict) and not MARKERS.isdisjoint(inner) else None

"""Files that tools take and return: bytes with a name and a media type, in JSON a reference to a blob."""

from __future__ import annotations

import hashlib
import mimetypes
from pathlib import Path
from typing import Any

import msgspec

from cadre.protocol.messages import FileInfo

FILE_KEY = "$file"
"""The key of a file in a JSON value: `{"$file": {"ref": "blob:<sha256>", "media_type": …, "name": …, "size": …}}`."""

UNKNOWN_MEDIA_TYPE = "application/octet-stream"

_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
)
_MEDIA_TYPES_BY_FORM = {
    "image": "image/png",
    "table": "text/csv",
    "array": "application/x-npy",
    "json": "application/json",
}
"""Media types by the form of values from agents' code: `{"$given": [form, "blob:…"]}`."""

_EARLIER_FILE = 'A file of an earlier result: its whole value, {"$file": {…}}, as it stands there.'
_PATH = "The path of a file in the run's workspace, or a file's `blob:` reference."


class NotLoaded(Exception):
    """The content of the file was not fetched; the call of a tool fetches it."""


class File:
    """A file that a tool returns, also within lists and dicts, or that a parameter with this hint receives.

    Args:
        data: The content.
        name: Its name, without a folder.
        media_type: Needed only if it does not follow from the content or the name.

    Examples:
        >>> def table(rows: list[str]) -> File:
        ...     '''Write rows as a table.'''
        ...     return File("\\n".join(rows).encode(), name="rows.csv")
        >>> table(["a,b", "1,2"]).media_type
        'text/csv'
    """

    def __init__(self, data: bytes, *, name: str = "", media_type: str = "") -> None:
        self._data: bytes | None = bytes(data)
        self._path = ""
        self.info = FileInfo(
            ref=f"blob:{hashlib.sha256(data).hexdigest()}",
            media_type=media_type_of(data, name, media_type),
            name=Path(name).name,
            size=len(data),
        )

    @classmethod
    def from_path(cls, path: str | Path) -> File:
        """Read a file of this machine. Raises OSError."""
        return cls(Path(path).read_bytes(), name=Path(path).name)

    @classmethod
    def from_json(cls, value: Any) -> File:
        """The file that a model or its code refers to; its content is fetched when the call begins.

        Raises ValueError for a value that refers to no file.
        """
        file = cls.__new__(cls)
        file._data, file._path = None, ""
        match value:
            case {"$file": about} if len(value) == 1:
                try:
                    file.info = msgspec.convert(about, FileInfo)
                except msgspec.ValidationError as error:
                    raise ValueError(f"no file: {error}") from error
            case {"$given": [str(form), str(ref), *_]} if len(value) == 1 and ref.startswith("blob:"):
                file.info = FileInfo(ref=ref, media_type=_MEDIA_TYPES_BY_FORM.get(form, UNKNOWN_MEDIA_TYPE))
            case str() if value.startswith("blob:"):
                file.info = FileInfo(ref=value)
            case str() if value.strip():
                file.info, file._path = FileInfo(ref="", name=Path(value).name), value
            case _:
                raise ValueError('expected the path of a file, or the value {"$file": {…}} of an earlier result')
        return file

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """A file within types of pydantic, which collects those that it reads or writes in a list, its context."""
        from pydantic_core import core_schema

        def read(value: Any, info: Any) -> File:
            file = cls.from_json(value)
            if isinstance(info.context, list):
                info.context.append(file)
            return file

        def write(file: File, info: Any) -> dict[str, Any]:
            if isinstance(info.context, list):
                info.context.append(file)
            return file.to_json()

        return core_schema.with_info_plain_validator_function(
            read,
            serialization=core_schema.plain_serializer_function_ser_schema(write, info_arg=True),
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> dict[str, Any]:
        return file_output_schema(cls) if handler.mode == "serialization" else file_schema(cls)

    def to_json(self) -> dict[str, Any]:
        """The file as a JSON value, without its content."""
        return {FILE_KEY: msgspec.to_builtins(self.info)}

    @property
    def name(self) -> str:
        """The name without folders; may be empty."""
        return self.info.name

    @property
    def media_type(self) -> str:
        """The media type, like `image/png`."""
        return self.info.media_type

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self.info.size

    @property
    def data(self) -> bytes:
        """The content. Raises NotLoaded for a file that was made from a reference and not fetched."""
        if self._data is None:
            raise NotLoaded(f"the content of {self._path or self.info.ref} was not fetched: pass it to a tool")
        return self._data

    @property
    def text(self) -> str:
        """The content as UTF-8. Raises UnicodeDecodeError."""
        return self.data.decode()

    @property
    def path(self) -> str:
        """The path in the workspace of a file that was named by it and not fetched yet; else empty."""
        return self._path

    @property
    def is_loaded(self) -> bool:
        """Return whether the content is here."""
        return self._data is not None

    def load(self, data: bytes, about: FileInfo | None = None) -> None:
        """Set the content of a file that was made from a reference, and derives what is unknown from it."""
        self._data, self._path = data, ""
        about = about or self.info
        self.info = msgspec.structs.replace(
            about,
            ref=f"blob:{hashlib.sha256(data).hexdigest()}",
            media_type=media_type_of(
                data, about.name, "" if about.media_type == UNKNOWN_MEDIA_TYPE else about.media_type
            ),
            size=len(data),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, File) and self.info == other.info and self._path == other._path

    def __hash__(self) -> int:
        return hash((self.info.ref, self._path))

    def __repr__(self) -> str:
        return f"<file {self.name or self.info.ref} ({self.media_type}, {self.size} bytes)>"


def media_type_of(data: bytes, name: str = "", declared: str = "") -> str:
    """The media type by content, by what is declared, or by the name; an image type only if the content is one."""
    seen = next((kind for beginning, kind in _BEGINNINGS if data.startswith(beginning)), "")
    if data[:4] == b"RIFF":
        seen = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}.get(data[8:12], "")
    declared = declared.partition(";")[0].strip().lower()
    if seen and (not declared or seen in _IMAGES or declared == UNKNOWN_MEDIA_TYPE):
        return seen
    declared = declared or mimetypes.guess_type(name)[0] or UNKNOWN_MEDIA_TYPE
    if declared in _IMAGES:
        return UNKNOWN_MEDIA_TYPE
    return declared


def file_schema(hint: type[Any]) -> dict[str, Any]:
    """The `schema_hook` of msgspec for a tool's arguments."""
    if hint is not File:
        raise NotImplementedError
    return {"anyOf": [{"type": "string", "description": _PATH}, {"type": "object", "description": _EARLIER_FILE}]}


def file_output_schema(hint: type[Any]) -> dict[str, Any]:
    """The `schema_hook` of msgspec for what a tool returns."""
    if hint is not File:
        raise NotImplementedError
    about = {"ref": "string", "media_type": "string", "name": "string", "size": "integer"}
    inner = {"type": "object", "properties": {name: {"type": kind} for name, kind in about.items()}}
    return {
        "type": "object",
        "description": "A file. Pass this value on, whole, to tools that take one.",
        "properties": {FILE_KEY: inner},
        "required": [FILE_KEY],
    }

"""Files that tools take and return: bytes with a name and a media type, as JSON a reference to a blob."""

from __future__ import annotations

import hashlib
import mimetypes
from pathlib import Path
from typing import Any

import msgspec

from cadre.protocol.messages import FileInfo

FILE_KEY = "$file"
"""`{"$file": {"ref": "blob:<sha256>", "media_type": …, "name": …, "size": …}}` is a file within a value."""

UNKNOWN = "application/octet-stream"

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
_OF_FORMS = {"image": "image/png", "table": "text/csv", "array": "application/x-npy"}
"""Of the values that code hands over (`{"$given": [form, "blob:…"]}`)."""

_PICKED_UP = 'A file of an earlier result: its whole value, {"$file": {…}}, as it stands there.'
_PATH = "The path of a file in the run's workspace, or a file's `blob:` reference."


class NotLoaded(Exception):
    """The content of a file is not here: only a call of a tool fetches it."""


class File:
    """What a tool returns, also within lists and dicts, and what a parameter with this hint receives.

    `File(data, name="plot.png")` needs no media type where the content or the name tells it.
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
        """A file of this machine. Raises OSError."""
        return cls(Path(path).read_bytes(), name=Path(path).name)

    @classmethod
    def from_json(cls, value: Any) -> File:
        """What a model or its code passes for a file; its content is fetched when the call begins.

        Raises ValueError for what is none.
        """
        file = cls.__new__(cls)
        file._data, file._path = None, ""
        match value:
            case {"$file": about} if len(value) == 1:
                try:
                    file.info = msgspec.convert(about, FileInfo)
                except msgspec.ValidationError as error:
                    raise ValueError(f"no file: {error}") from error
            case {"$given": [str(form), str(ref)]} if len(value) == 1:
                file.info = FileInfo(ref=ref, media_type=_OF_FORMS.get(form, UNKNOWN))
            case str() if value.startswith("blob:"):
                file.info = FileInfo(ref=value)
            case str() if value.strip():
                file.info, file._path = FileInfo(ref="", name=Path(value).name), value
            case _:
                raise ValueError(
                    'expected the path of a file, or the value {"$file": {…}} of an earlier result'
                )
        return file

    def to_json(self) -> dict[str, Any]:
        return {FILE_KEY: msgspec.to_builtins(self.info)}

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def media_type(self) -> str:
        return self.info.media_type

    @property
    def size(self) -> int:
        """Bytes."""
        return self.info.size

    @property
    def data(self) -> bytes:
        """Raises NotLoaded for a file that was made of a reference and never fetched."""
        if self._data is None:
            raise NotLoaded(
                f"the content of {self._path or self.info.ref} was not fetched: pass it to a tool"
            )
        return self._data

    @property
    def text(self) -> str:
        """The content as UTF-8. Raises UnicodeDecodeError."""
        return self.data.decode()

    @property
    def path(self) -> str:
        """In the workspace, of a file that was named by its path and not fetched yet; else empty."""
        return self._path

    @property
    def is_loaded(self) -> bool:
        return self._data is not None

    def load(self, data: bytes, about: FileInfo | None = None) -> None:
        """Gives a file that was made of a reference its content; what is not known of it is told by that."""
        self._data, self._path = data, ""
        about = about or self.info
        self.info = msgspec.structs.replace(
            about,
            ref=f"blob:{hashlib.sha256(data).hexdigest()}",
            media_type=media_type_of(
                data, about.name, "" if about.media_type == UNKNOWN else about.media_type
            ),
            size=len(data),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, File) and self.info == other.info and self._path == other._path

    def __hash__(self) -> int:
        return hash((self.info.ref, self._path))

    def __repr__(self) -> str:
        return f"<file {self.name or self.info.ref} ({self.media_type}, {self.size} bytes)>"


def media_type_of(data: bytes, name: str = "", told: str = "") -> str:
    """Of its beginning, of what is told, of its name's ending; never an image that its content is not."""
    seen = _seen(data)
    told = told.partition(";")[0].strip().lower()
    if seen and (not told or seen in _IMAGES or told == UNKNOWN):
        return seen
    told = told or mimetypes.guess_type(name)[0] or UNKNOWN
    if told in _IMAGES:
        return UNKNOWN
    return told


def _seen(data: bytes) -> str:
    if data[:4] == b"RIFF":
        return {b"WEBP": "image/webp", b"WAVE": "audio/wav"}.get(data[8:12], "")
    return next((kind for beginning, kind in _BEGINNINGS if data.startswith(beginning)), "")


def file_schema(hint: type[Any]) -> dict[str, Any]:
    """msgspec's `schema_hook` for arguments."""
    if hint is not File:
        raise NotImplementedError
    return {
        "anyOf": [{"type": "string", "description": _PATH}, {"type": "object", "description": _PICKED_UP}]
    }


def file_output_schema(hint: type[Any]) -> dict[str, Any]:
    """msgspec's `schema_hook` for what a tool returns."""
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

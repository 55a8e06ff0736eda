"""The files of the console, read once, each with what a browser needs to know of it."""

import hashlib
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

_MEDIA_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class Asset(NamedTuple):
    """One file of the console."""

    data: bytes
    media_type: str
    etag: str
    """Quoted, as the header has it: a digest of the file."""


def load_assets() -> dict[str, Asset]:
    """All files of the console by their path below `web`."""
    return dict(_assets(files("cadre_gateway.console") / "web", ""))


def _assets(folder: Traversable, prefix: str) -> list[tuple[str, Asset]]:
    found: list[tuple[str, Asset]] = []
    for entry in folder.iterdir():
        path = prefix + entry.name
        if entry.is_dir():
            found += _assets(entry, path + "/")
        elif (media_type := _MEDIA_TYPES.get(entry.name.rpartition(".")[2])) is not None:
            data = entry.read_bytes()
            found.append((path, Asset(data, media_type, f'"{hashlib.sha256(data).hexdigest()[:32]}"')))
    return found

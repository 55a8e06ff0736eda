"""Files as `data:` URLs, which a request for a run carries."""

import base64
import mimetypes
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

Source = str | os.PathLike[str] | bytes
"""The path of a file, or its content."""

URL_PREFIXES = ("https://", "http://", "data:", "blob:")
"""What begins an image that is handed on as it stands, for it is no file."""


def data_url(name: str, content: bytes) -> str:
    """The content as a `data:` URL, its media type by the name."""
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def file_urls(files: Mapping[str, Source] | Iterable[str | os.PathLike[str]]) -> dict[str, str]:
    """The files by their paths in the workspace: those of the mapping, or each file's own name.

    A text that begins with `data:` or `blob:` stands as it is. Raises OSError, and ValueError for two files of one
    name.
    """
    if isinstance(files, Mapping):
        return {path: _url(path, source) for path, source in files.items()}
    urls: dict[str, str] = {}
    for file in files:
        name = Path(file).name
        if name in urls:
            raise ValueError(f"two files are named {name}: give them as a mapping, by other paths")
        urls[name] = _url(name, file)
    return urls


def image_urls(images: Iterable[str | os.PathLike[str]]) -> list[str]:
    """The images as URLs: files as `data:` URLs, what is a URL already as it stands. Raises OSError."""
    return [
        image
        if isinstance(image, str) and image.startswith(URL_PREFIXES)
        else data_url(str(image), Path(image).read_bytes())
        for image in images
    ]


def _url(path: str, source: Source) -> str:
    if isinstance(source, str) and source.startswith(("data:", "blob:")):
        return source
    return data_url(path, source if isinstance(source, bytes) else Path(source).read_bytes())

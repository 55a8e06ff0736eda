"""Answer with the bytes of a file, as a download."""

import re
from collections.abc import Iterator
from urllib.parse import quote

from fastapi.responses import Response, StreamingResponse

from cadre.tools.files import UNKNOWN_MEDIA_TYPE

MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}/[a-z0-9][a-z0-9.+-]{0,127}")
_PIECE_BYTES = 256 * 1024
_MAX_NAME_CHARS = 200


def download(data: bytes, name: str, media_type: str) -> Response:
    """Return the bytes as a file, which no browser shows as a page of this gateway."""
    plain = "".join(c for c in name if c.isprintable() and c not in '/\\"')[:_MAX_NAME_CHARS] or "file"
    ascii_name = plain.encode("ascii", "replace").decode().replace("?", "_").replace("%", "_")
    headers = {
        "Content-Disposition": f"attachment; filename=\"{ascii_name}\"; filename*=UTF-8''{quote(plain, safe='')}",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Content-Length": str(len(data)),
    }
    kind = media_type if MEDIA_TYPE.fullmatch(media_type) else UNKNOWN_MEDIA_TYPE
    return StreamingResponse(_pieces(data), headers=headers, media_type=kind)


def _pieces(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), _PIECE_BYTES):
        yield data[start : start + _PIECE_BYTES]

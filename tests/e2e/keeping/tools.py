"""A tool that shows something."""

import struct
import zlib

from cadre.tool import File, tool


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


@tool(read_only=True)
def screenshot(number: int) -> dict[str, object]:
    """Takes a picture of the screen.

    Args:
        number: Which screen; each has a grey of its own.
    """
    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    pixels = zlib.compress(bytes([0, number]))
    png = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", pixels) + _chunk(b"IEND", b"")
    return {"title": f"screen {number}", "image": File(png, name=f"screen-{number}.png")}

"""What a message of a client holds, whichever protocol it is written in."""

from typing import Any

import msgspec


class MessageContent(msgspec.Struct):
    """What a message holds."""

    text: str = ""
    images: list[str] = []
    files: dict[str, str] = {}
    """`data:` URLs by name."""
    data: list[Any] = []
    """Values beside the text."""

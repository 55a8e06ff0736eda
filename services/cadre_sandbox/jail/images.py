"""Pillow's images as files and back: PNG for every reader, and TIFF beside it where PNG lacks the mode."""

import io
from typing import Any

_IN_PNG = {"1", "L", "LA", "P", "RGB", "RGBA", "I;16"}

_IN_TIFF = {"CMYK": "RGB", "F": "L", "I": "L"}
"""Modes that TIFF has and PNG has not, and the mode of the PNG."""


def to_files(image: Any) -> tuple[bytes, bytes | None]:
    """The image as PNG, and as TIFF where the PNG is not all of it. Raises ValueError for a mode that neither has."""
    if image.mode in _IN_PNG:
        return _file(image, "PNG"), None
    if image.mode not in _IN_TIFF:
        raise ValueError(f"is an image of mode {image.mode}; convert it: image.convert('RGB')")
    return _file(image.convert(_IN_TIFF[image.mode]), "PNG"), _file(image, "TIFF")


def _file(image: Any, form: str) -> bytes:
    file = io.BytesIO()
    image.save(file, format=form)
    return file.getvalue()

"""A file that is downloaded: whole, or not there at all."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from cadre.errors import CommandFailed


@contextlib.contextmanager
def output_file(file: Path) -> Iterator[BinaryIO]:
    """Opens `file` for writing: it appears when it is whole and not before. A device or pipe is written directly.

    Raises CommandFailed, naming the file.
    """
    file = file.resolve()
    if file.exists() and not file.is_file():
        with _named_errors(file), file.open("wb") as stream:
            yield stream
        return
    partial = file.with_name(f".{file.name}.{os.getpid()}.part")
    with _named_errors(file):
        try:
            with partial.open("wb") as stream:
                yield stream
            partial.replace(file)
        finally:
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def _named_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CommandFailed(f"{file}: {error.strerror or error}") from error

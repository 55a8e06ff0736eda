"""The standard library where the host's files are in sight but out of reach (tier landlock)."""

import mimetypes
import shutil
from typing import Any


def keep_to_the_jail() -> None:
    """Have it leave alone what the kernel refuses: the host's tables of file types, and the modes and times of files,
    which `shutil` copies beside their content."""
    mimetypes.knownfiles.clear()
    shutil.copymode = shutil.copystat = _copy_nothing


def _copy_nothing(src: Any, dst: Any, *, follow_symlinks: bool = True) -> None:
    pass

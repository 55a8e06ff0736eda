"""The folder that a jail of tier landlock may write to: made, measured, removed, also after its owner's death."""

import errno
import fcntl
import itertools
import logging
import os
import stat
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self
from uuid import uuid4

log = logging.getLogger("cadre.sandbox")

MEASURING_THREAD = ThreadPoolExecutor(1, thread_name_prefix="scratch")
"""The one thread that measures scratch folders: it takes as long as the disk does, and a descriptor for each level."""

_PREFIX = "cadre-scratch-"
_MAX_ENTRIES = 4096
_MAX_DEPTH = 128
_MAX_ENTRIES_AT_ONCE = 10_000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_ITSELF = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW


class Scratch:
    """A scratch folder, locked by its owner for as long as the owner lives: a folder without a lock is abandoned."""

    def __init__(self, path: Path, held: int) -> None:
        self.path = path
        self._held = held

    @classmethod
    def make(cls, uid: int) -> Self:
        """Make a folder that belongs to `uid` where this process is root, else to its own user."""
        while True:
            path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            held = os.open(path, _FOLDER)
            # Another service that has just started may have found it in the moment before, and taken it.
            if _lock(held) is not False and path.exists():
                break
            os.close(held)
        scratch = cls(path, held)
        if os.geteuid() == 0:
            os.chown(path, uid, uid)
        return scratch

    def is_over(self, most: int) -> bool:
        """Return whether there are more than `most` bytes, or too many files, folders and links. Files that are open
        and have no name are not seen.
        """
        try:
            return _is_over(str(self.path), most)
        except FileNotFoundError:
            return False  # it was removed meanwhile
        except PermissionError:
            return True  # a folder is hidden as fast as it is opened

    def remove(self) -> None:
        """Remove the folder and all that is in it. Does not raise: what could not be removed is logged."""
        try:
            _remove(self.path)
        except OSError as error:
            log.warning("%s could not be removed: %s", self.path, error)
        finally:
            os.close(self._held)


def remove_abandoned(uid: int) -> None:
    """Remove the folders of processes that were killed. Where this process is root, those of `uid` too."""
    owners = {os.geteuid(), uid} if os.geteuid() == 0 else {os.geteuid()}
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            # Where others may write, a folder or a link of theirs may have any name.
            about = path.lstat()
            if not stat.S_ISDIR(about.st_mode) or about.st_uid not in owners:
                continue
            held = _opened(str(path))
        except FileNotFoundError:
            continue  # its owner, or another that has just started, was faster
        if _lock(held):
            log.info("%s was left by a process that is no more: it is removed", path)
            Scratch(path, held).remove()
        else:
            os.close(held)


def _lock(folder: int) -> bool | None:
    """Return whether the lock could be taken; None if the file system has no locks, so that the owner is unknown."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _opened(name: str, within: int | None = None) -> int:
    """Return a descriptor of the folder itself, never of what a link leads to, with all rights for its owner: the code
    may have taken them away."""
    try:
        folder = os.open(name, _FOLDER, dir_fd=within)
    except PermissionError:
        itself = os.open(name, _ITSELF, dir_fd=within)
        try:
            os.chmod(f"/proc/self/fd/{itself}", stat.S_IRWXU)
        finally:
            os.close(itself)
        folder = os.open(name, _FOLDER, dir_fd=within)
    if os.geteuid() != 0 and os.fstat(folder).st_mode & stat.S_IRWXU != stat.S_IRWXU:
        os.fchmod(folder, stat.S_IRWXU)
    return folder


class _OpenFolder:
    """A folder on the way down, and those of its entries that are still to come."""

    def __init__(self, name: str, within: int | None) -> None:
        self.folder = _opened(name, within)
        self.entries = os.scandir(self.folder)

    def close(self) -> None:
        self.entries.close()
        os.close(self.folder)


def _is_over(path: str, most: int) -> bool:
    """Return whether the limits are exceeded, going from folder to folder by descriptors: paths of what lies deep are
    longer than the system takes.
    """
    size = count = 0
    way = [_OpenFolder(path, None)]
    try:
        while way:
            entry = next(way[-1].entries, None)
            if entry is None:
                way.pop().close()
                continue
            try:
                about = entry.stat(follow_symlinks=False)
                count += 1
                size += about.st_blocks * 512
                if size > most or count > _MAX_ENTRIES or len(way) > _MAX_DEPTH:
                    return True
                if stat.S_ISDIR(about.st_mode):
                    way.append(_OpenFolder(entry.name, way[-1].folder))
            except (FileNotFoundError, NotADirectoryError):
                continue  # the code is at work
    finally:
        for level in way:
            level.close()
    return False


def _remove(path: Path) -> None:
    """Remove the folder however deep it is: a folder within a folder is moved up, and removed there."""
    scratch = _opened(str(path))
    fresh = (f"{uuid4().hex}-{number}" for number in itertools.count())
    try:
        while some := _first_entries(scratch):
            for name, is_folder in some:
                if is_folder:
                    _remove_folder(name, scratch, fresh)
                else:
                    os.unlink(name, dir_fd=scratch)
    finally:
        os.close(scratch)
    path.rmdir()


def _remove_folder(name: str, scratch: int, fresh: Iterator[str]) -> None:
    try:
        os.rmdir(name, dir_fd=scratch)
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    folder = _opened(name, scratch)
    try:
        while some := _first_entries(folder):
            for inner, is_folder in some:
                if is_folder:
                    # Moving a folder elsewhere takes the right to write in it.
                    os.close(_opened(inner, folder))
                    os.rename(inner, next(fresh), src_dir_fd=folder, dst_dir_fd=scratch)
                else:
                    os.unlink(inner, dir_fd=folder)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=scratch)


def _first_entries(folder: int) -> list[tuple[str, bool]]:
    """Return the names of some entries, and whether each is a folder; empty without entries."""
    with os.scandir(folder) as entries:
        some = itertools.islice(entries, _MAX_ENTRIES_AT_ONCE)
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in some]

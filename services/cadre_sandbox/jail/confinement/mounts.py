"""Give a process its own root: the interpreter's files read-only, an empty /work, nothing else of the host."""

import os
import sys
import sysconfig

from cadre_sandbox.jail.confinement import kernel
from cadre_sandbox.jail.confinement.kernel import (
    mount,
)

WORK = "/work"

_LIBRARIES = ("/usr/lib", "/lib", "/lib64", "/usr/share/zoneinfo", "/etc/ld.so.cache")
_COVERED = "/tmp"
"""Path at which the new root is put together, in this process's own view only."""

_STATVFS_BITS = {
    2: kernel.MS_NOSUID,
    4: kernel.MS_NODEV,
    8: kernel.MS_NOEXEC,
    1024: kernel.MS_NOATIME,
    4096: kernel.MS_RELATIME,
}

_MAX_FILES = 4096


def interpreter_files() -> list[str]:
    """The paths that Python needs to import: its library, installed packages, the system's shared libraries."""
    paths = sysconfig.get_paths()
    wanted = {os.path.join(sys.base_prefix, "lib"), *(paths[key] for key in ("stdlib", "platstdlib"))}
    wanted |= {paths["purelib"], paths["platlib"], *(path for path in sys.path if "dist-packages" in path)}
    kept: list[str] = []
    for path in sorted({os.path.realpath(path) for path in (*wanted, *_LIBRARIES) if os.path.exists(path)}):
        if not any(path == above or path.startswith(above + "/") for above in kept):
            kept.append(path)
    return kept


def importable(files: list[str]) -> list[str]:
    """The entries of sys.path that lie within `files`."""
    real = ((path, os.path.realpath(path)) for path in sys.path if path)
    return [path for path, at in real if any(at == tree or at.startswith(tree + "/") for tree in files)]


def enter_root(readable: list[str], work_mb: int) -> None:
    """Make the new root and enter it; afterwards the working directory is /work. Raises OSError where a step is
    refused."""
    mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    # Opened before anything is covered.
    trees = [(path, os.open(path, os.O_PATH)) for path in readable]
    null = os.open("/dev/null", os.O_PATH)
    quiet = kernel.MS_NOSUID | kernel.MS_NODEV
    mount("tmpfs", _COVERED, "tmpfs", quiet, "size=1m,mode=755")
    os.mkdir(_COVERED + WORK)
    size = f"size={work_mb}m,nr_inodes={_MAX_FILES},mode=777"
    # Before the trees: an installation of Python below a /work of the host stays in sight within it.
    mount("tmpfs", _COVERED + WORK, "tmpfs", quiet | kernel.MS_NOEXEC, size)
    for path, tree in trees:
        _bind(tree, _COVERED + path)
        _restrict(_COVERED + path, kernel.MS_RDONLY | quiet)
        os.close(tree)
    _bind(null, f"{_COVERED}/dev/null")
    os.close(null)
    _link_libraries()
    os.chdir(_COVERED)
    kernel.syscall("pivot_root", kernel.PIVOT_ROOT, b".", b".")
    kernel.unmount(".")
    mount("none", "/", None, kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | quiet)
    os.chdir(WORK)


def _bind(source: int, target: str) -> None:
    origin = f"/proc/self/fd/{source}"
    if os.path.isdir(origin):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
    mount(origin, target, None, kernel.MS_BIND | kernel.MS_REC)


def _restrict(target: str, flags: int) -> None:
    """Add flags to a mount. Those that it has already must be named again, else the kernel refuses."""
    had = os.statvfs(target).f_flag
    for bit, flag in _STATVFS_BITS.items():
        flags |= flag if had & bit else 0
    mount("none", target, None, kernel.MS_REMOUNT | kernel.MS_BIND | flags)


def _link_libraries() -> None:
    for name in ("lib", "lib64"):
        if os.path.islink(f"/{name}") and not os.path.lexists(f"{_COVERED}/{name}"):
            os.symlink(os.readlink(f"/{name}"), f"{_COVERED}/{name}")

"""Writes a Python that a container runtime has taken system calls from, as Kubernetes' RuntimeDefault does."""

import sys
from collections.abc import Mapping
from pathlib import Path

import cadre_sandbox

NAMESPACES = {272: 1, 165: 1, 155: 1, 308: 1}
"""unshare, mount, pivot_root, setns: EPERM, on x86_64."""

LANDLOCK = {444: 38, 445: 38, 446: 38}
"""ENOSYS, as on a kernel that has none."""

_SCRIPT = """#!{python}
import os, sys
sys.path.insert(0, {services!r})
from cadre_sandbox.jail.confinement import kernel, seccomp
kernel.no_new_privileges()
program = [(0x20, 0, 0, 0)]
for number, code in {refused!r}.items():
    program += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | code)]
seccomp.install([*program, (0x06, 0, 0, 0x7FFF0000)])
os.execv({python!r}, [{python!r}, *sys.argv[1:]])
"""


def write(folder: Path, python: str | None, refused: Mapping[int, int]) -> str:
    """Its path. Nothing else of this interpreter is changed."""
    services = str(Path(cadre_sandbox.__file__).parents[1])
    script = folder / "python"
    script.write_text(_SCRIPT.format(python=python or sys.executable, services=services, refused=dict(refused)))
    script.chmod(0o755)
    return str(script)

"""A process in a domain of its sees into no other process of its user, and otherwise does what it did."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_LOOK = """
import os, subprocess, sys
from pathlib import Path
from cadre.service.other_processes import close_other_processes

def looks(pid, key):
    found = []
    for what in ("environ", "maps", "mem", f"fd/{key}"):
        try:
            with open(f"/proc/{pid}/{what}", "rb") as file:
                found.append(what if what in ("maps", "mem") or b"hidden" in file.read() else "")
        except OSError:
            continue
    return [what for what in found if what]

other, key = map(int, sys.argv[1:3])
print(looks(other, key))
close_other_processes()
print(looks(other, key))
child = subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], stdin=-1, stdout=-1, env={"A": "hidden"})
child.stdout.readline()
print("environ" in looks(child.pid, 999))
child.kill()
here = Path(sys.argv[3])
(here / "a").mkdir(); (here / "b").mkdir(); (here / "a/x").write_text("x")
os.rename(here / "a/x", here / "b/x")
print((here / "b/x").read_text())
"""


def test_what_others_hold_is_closed_and_nothing_else(tmp_path: Path) -> None:
    # Root may read environments no matter what its domain: here it has no rights beyond those of any user.
    plain: list[str] = []
    if os.getuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root cannot give up its rights here")
        plain = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"]
    key = os.memfd_create("key")
    os.write(key, b"hidden")
    other = subprocess.Popen([*plain, "sleep", "60"], env={**os.environ, "CADRE_MODEL_KEY": "hidden"}, pass_fds=(key,))
    try:
        looked = subprocess.run(
            [*plain, sys.executable, "-c", _LOOK, str(other.pid), str(key), str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        other.kill()
        other.wait()
        os.close(key)
    if "it needs Linux 5.19" in looked.stderr:
        pytest.skip("this kernel has no Landlock")
    before, after, own_child, moved = looked.stdout.splitlines() or pytest.fail(looked.stderr)
    assert "environ" in before
    assert f"fd/{key}" in before
    assert after == "[]"
    assert own_child == "True"
    assert moved == "x"

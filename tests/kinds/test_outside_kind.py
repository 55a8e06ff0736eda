"""A kind of agent from another distribution works like Cadre's own: nothing of Cadre knows it by name.

It is installed for processes of its own only (an entry point beside its package in `site/`), so each file of
`patient/` is a session of pytest.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize("file", sorted(path.name for path in (HERE / "patient").glob("*.py")))
def test_a_kind_from_outside(file: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / "patient" / file)],
        env={**os.environ, "PYTHONPATH": str(HERE / "site")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr

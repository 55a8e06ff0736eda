"""Processes of tests leave nothing in the checkout."""

import os
from pathlib import Path

from harness import forks
from harness.patience import patience


def test_what_a_process_writes_by_a_relative_path_lies_beside_its_log(tmp_path: Path) -> None:
    script = tmp_path / "elsewhere" / "write.py"
    script.parent.mkdir()
    script.write_text("open('example file', 'w').close()")
    process = forks.start([str(script)], os.environ, tmp_path / "log")
    assert process.wait(patience()) == 0, (tmp_path / "log").read_text()
    assert (tmp_path / "example file").is_file()

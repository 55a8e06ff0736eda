"""Tests of what an executor keeps of the tasks of a program: for a month, and their files no longer."""

import os
import time
from pathlib import Path

from cadre.adapters.acp.task_store import TaskRecord, TaskStore


def test_what_is_old_goes_with_its_files(tmp_path: Path) -> None:
    before = TaskStore(tmp_path)
    for task in ("run-1", "run-2"):
        file = before.files_of(task) / "1-book.txt"
        file.parent.mkdir(parents=True)
        file.write_text("Basalt.")
        before.write(TaskRecord(task=task, blocks=[], folder=str(tmp_path)))
    lost = before.files_of("never/begun")
    lost.mkdir()
    month = time.time() - 31 * 86_400
    os.utime(tmp_path / "run-1.json", (month, month))
    store = TaskStore(tmp_path)
    assert store.is_mine()
    assert store.read("run-1") is None
    assert store.read("run-2") is not None
    assert [one.name for one in (tmp_path / "files").iterdir()] == ["run-2"]

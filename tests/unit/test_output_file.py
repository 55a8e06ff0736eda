"""Tests of where `-o FILE` writes: a file whole or not at all, a pipe or device as it is, a link's target."""

import os
import threading
from pathlib import Path

import pytest

from cadre.cli.runs.files import output_file
from cadre.errors import CommandFailed


def test_a_file_is_there_when_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "out"
    file.write_bytes(b"before")
    half = b"half"
    with pytest.raises(TypeError), output_file(file) as stream:
        stream.writelines([half, None])  # type: ignore[list-item]
    assert file.read_bytes() == b"before"
    with output_file(file) as stream:
        stream.write(b"whole")
    assert file.read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [file]


def test_the_target_of_a_link_is_output_file(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "target")
    with output_file(link) as stream:
        stream.write(b"there")
    assert link.is_symlink()
    assert (tmp_path / "target").read_bytes() == b"there"


def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    with output_file(pipe) as stream:
        stream.write(b"through")
    reader.join(10)
    assert read == [b"through"]
    assert pipe.is_fifo()


def test_a_folder_is_no_place_to_write_to(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="directory"), output_file(tmp_path):
        pass

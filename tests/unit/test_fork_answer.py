"""Tests of what `cadre fork` says of a workspace that could not be brought back to the step."""

import pytest

from cadre.cli.runs.launch import note_later_files


@pytest.mark.parametrize(
    ("later", "message"),
    [
        ([], ""),
        (["a", "b"], ": a, b\n"),
        ([f"{n:02}" for n in range(23)], ", 18, 19 and 3 more\n"),
    ],
)
def test_files_of_later_are_named(capsys: pytest.CaptureFixture[str], later: list[str], message: str) -> None:
    note_later_files(later)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.endswith(message)
    assert printed.err.count("\n") == bool(later)

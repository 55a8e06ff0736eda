"""`cadre up` in folders whose names hold blanks, quotes, and bytes that are no text: it works there and only there."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.folder_commands import FolderCommands, stop
from harness.guard import Guard

FILES = {
    "helper.yaml": """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: helper}
spec: {description: Helps., tools: [look]}
""",
    "team.yaml": """
apiVersion: cadre.dev/v1
kind: Team
metadata: {name: small}
spec: {agents: [helper.yaml], tools: [looks.py], script: script.yaml}
""",
    "script.yaml": """
rules:
  - name: looks
    match: {turn: 1}
    reply:
      tool_calls: [{name: look, arguments: {}}]
  - name: answers
    match: {}
    reply:
      tool_calls: [{name: final_answer, arguments: {answer: Seen.}}]
""",
    "looks.py": '''
from cadre.tool import tool

@tool
def look() -> str:
    """Looks."""
    return "seen"
''',
}

NAMES = [
    "jürgen".encode("latin-1"),
    'it\'s "quoted" back\\slash $HOME #hash ?query %41 {brace}\n\ttab 日本'.encode(),
]


@pytest.fixture
def guard() -> Iterator[Guard]:
    guard = Guard()
    yield guard
    guard.close()


@pytest.mark.parametrize("name", NAMES, ids=["no text", "signs"])
@pytest.mark.parametrize("secure", [False, True], ids=["open", "secure"])
def test_a_team_works_in_a_folder_of_any_name(tmp_path: Path, guard: Guard, name: bytes, secure: bool) -> None:
    folder = tmp_path / os.fsdecode(name)
    folder.mkdir()
    for file, text in FILES.items():
        (folder / file).write_text(text)
    commands = FolderCommands(folder, guard)
    # As on most machines; with C.UTF-8 Python would let any byte through.
    commands.environment |= {"LC_ALL": "", "PYTHONIOENCODING": "utf-8:strict"}
    up = commands.up(*(["--secure"] if secure else []))
    done = commands.run("run", "helper", "Look.")
    assert (done.returncode, done.stdout) == (0, "Seen.\n"), done.stderr
    doctor = commands.run("doctor")
    assert secure or "\nfail" not in doctor.stdout, "it has no key of the server's own"
    assert "defect" not in doctor.stderr
    assert stop(up) == 0
    assert (folder / ".cadre" / "index.db").exists()
    assert [os.fsencode(one.name) for one in tmp_path.iterdir()] == [name], "nothing went elsewhere"

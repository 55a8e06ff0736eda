"""Calls that wait for a person: listed, decided and asked about on the command line."""

import contextlib
import json
import os
import pty
import subprocess
import threading
from pathlib import Path

import pytest

from harness.command import Commands, only_line
from harness.patience import patience
from harness.people import decide, done, waiting
from harness.stack import Gateway
from harness.texts import holds

TEAM = Path(__file__).parent / "held"


@pytest.fixture
def books(tmp_path: Path) -> Path:
    return tmp_path / "books"


def test_the_command_line_lists_and_decides(gateway: Gateway, cadre: Commands, books: Path) -> None:
    run = gateway.submit("clerk", f"refund {books} 500")
    (call,) = waiting(gateway, run)
    listed = cadre("approvals", "--run", run).stdout.splitlines()
    assert listed[1].startswith(call["call"])
    assert f'refund(file="{books}", amount=500)' in listed[1]
    [told] = json.loads(cadre("approvals", "--run", run, "-o", "json").stdout)
    assert told["call"] == call["call"]
    assert "waiting, 1 to approve" in cadre("runs", "--agent", "clerk").stdout
    shown = cadre("show", run).stdout
    assert f"cadre approve {call['call']}" in shown

    corrected = cadre("correct", run, "--set", "amount=50", "--feedback", "Half.")
    assert corrected.returncode == 0, corrected.stderr
    assert corrected.stdout.startswith(f"{call['call']} corrected by ")
    assert "refund 50 is done" in gateway.finished(run)["output"]
    assert done(books) == ["refund 50"]
    line = only_line(cadre("approve", call["call"]), 1)
    assert "was corrected by" in line


def test_a_run_that_waits_for_two_words_must_be_told_which(gateway: Gateway, cadre: Commands, books: Path) -> None:
    run = gateway.submit("clerk", f"refund {books} 200 300")
    second, first = waiting(gateway, run, 2)
    line = only_line(cadre("approve", run), 2)
    assert first["call"] in line
    assert second["call"] in line
    assert cadre("reject", first["call"], "--feedback", "no").returncode == 0
    assert cadre("approve", run).returncode == 0
    gateway.finished(run)
    assert done(books) == ["refund 300"]
    assert run in only_line(cadre("approve", run), 4)


def test_bad_corrections_are_one_line(gateway: Gateway, cadre: Commands, books: Path) -> None:
    run = gateway.submit("clerk", f"refund {books} 500")
    (call,) = waiting(gateway, run)
    assert "argument amount" in only_line(cadre("correct", run, "--set", "amount=much"), 2)
    assert "not JSON" in only_line(cadre("correct", run, "--arguments", "{amount"), 2)
    assert holds(only_line(cadre("correct", run), 2), "--set", "--arguments", "--tool")
    assert "NAME=VALUE" in only_line(cadre("correct", run, "--set", "amount"), 2)
    assert cadre("reject", call["call"]).returncode == 0


def test_a_followed_run_shows_what_waits(cadre: Commands, books: Path) -> None:
    following = cadre.start("run", "clerk", f"refund {books} 500")
    assert following.stderr is not None
    told = ""
    for told in following.stderr:
        if "waits for approval" in told:
            break
    assert f'refund(file="{books}", amount=500)' in told
    call = told.rsplit("cadre approve ", 1)[1].strip()
    assert cadre("reject", call, "--feedback", "no").returncode == 0
    output, rest = following.communicate(timeout=patience())
    assert "refund: rejected by" in rest
    assert "did not allow" in output


# --- at a terminal


def on_a_terminal(cadre: Commands, *arguments: str) -> tuple[subprocess.Popen[bytes], int]:
    """The command with a terminal as stdin and stderr, and this side of the terminal."""
    mine, its = pty.openpty()
    process = subprocess.Popen(
        cadre._argv(arguments),
        cwd=cadre.folder,
        env={**cadre._environment, "TERM": "xterm", "COLUMNS": "150", "NO_COLOR": "1"},
        stdin=its,
        stderr=its,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    os.close(its)
    return process, mine


def read_until(terminal: int, text: str) -> str:
    seen = ""
    while text not in seen:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # the other side has gone
            data = b""
        assert data, seen
        seen += data.decode(errors="replace")
    return seen


def read_to_the_end(terminal: int) -> None:
    """So that the command can write."""
    with contextlib.suppress(OSError):
        while os.read(terminal, 65536):
            pass


@pytest.mark.parametrize(
    ("typed", "answer", "effects"),
    [
        (["a"], "refund 500 is done", ["refund 500"]),
        (["what?", "r he was paid"], "he was paid", []),
        (
            ["c {amount", 'c {"amount": "much"}', 'c {"amount": 50}'],
            "refund 50 is done",
            ["refund 50"],
        ),
    ],
)
def test_a_person_decides_at_the_terminal(
    cadre: Commands, books: Path, typed: list[str], answer: str, effects: list[str]
) -> None:
    """It asks again for anything that cannot be understood or made."""
    process, terminal = on_a_terminal(cadre, "run", "clerk", f"refund {books} 500")
    for line in typed:
        read_until(terminal, "[l]ater? ")
        os.write(terminal, line.replace("BOOKS", str(books)).encode() + b"\n")
    rest = threading.Thread(target=read_to_the_end, args=(terminal,), daemon=True)
    rest.start()
    output, _ = process.communicate(timeout=patience())
    assert process.returncode == 0
    assert answer in output.decode()
    assert done(books) == effects
    rest.join(timeout=patience())
    os.close(terminal)


def test_a_question_ends_when_somebody_else_has_decided(gateway: Gateway, cadre: Commands, books: Path) -> None:
    process, terminal = on_a_terminal(cadre, "run", "clerk", f"refund {books} 200 300")
    read_until(terminal, "[l]ater? ")
    run = gateway.request("GET", "/v1/runs", params={"limit": 1}).json()["runs"][0]["id"]
    second, first = waiting(gateway, run, 2)
    assert decide(gateway, first["call"], "rejected").status_code == 200
    seen = read_until(terminal, "amount=300")
    assert "decided elsewhere" in seen
    os.write(terminal, b"l\n")
    read_until(terminal, f"cadre approve {second['call']}")
    assert decide(gateway, second["call"], "approved").status_code == 200
    rest = threading.Thread(target=read_to_the_end, args=(terminal,), daemon=True)
    rest.start()
    output, _ = process.communicate(timeout=patience())
    assert (process.returncode, done(books)) == (0, ["refund 300"])
    assert b"refund 300 is done" in output
    rest.join(timeout=patience())
    os.close(terminal)

"""Tests of what a model wrote, printed: answers, and the memory that `cadre show --full` reports."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cadre.adapters.local_stack import logs_folder
from cadre.cli.run_view.run_text import steps_text, summary
from cadre.cli.team.logs import command as show_logs
from cadre.cli.terminal.output import as_text, print_text, printable, table

CALL: dict[str, Any] = {"id": "r_1_0", "name": "search", "kind": "tool", "arguments": {"query": "münze"}}


@pytest.mark.parametrize(
    ("output", "text"),
    [("two\nlines", "two\nlines"), ({"a": "ü"}, '{\n  "a": "ü"\n}'), (7, "7"), (None, "null")],
)
def test_text_stands_as_it_is_and_the_rest_is_json(output: Any, text: str) -> None:
    assert as_text(output) == text


FILE = {"ref": "blob:" + "a" * 64, "media_type": "image/png", "name": "my plot.png", "size": 10_240}


def test_a_file_is_told_in_words_with_what_downloads_it() -> None:
    download = f"cadre files blob:{'a' * 64} -o 'my plot.png'"
    assert as_text({"$file": FILE}) == f"my plot.png (image/png, 10.2 kB)\n{download}"
    shown = as_text({"plots": [{"$file": FILE}, {"$file": FILE}], "n": 1})
    assert shown.count("my plot.png (image/png, 10.2 kB)") == 2
    assert shown.endswith(f"}}\n{download}")
    of_code: dict[str, list[str]] = {"$given": ["table", "blob:" + "b" * 64]}
    assert as_text([of_code]) == f'[\n  "table (text/csv)"\n]\ncadre files blob:{"b" * 64} -o FILE'
    of_code["$given"].append("blob:" + "c" * 64)
    assert as_text([of_code]) == f'[\n  "table (text/csv)"\n]\ncadre files blob:{"b" * 64} -o FILE'
    assert as_text({"mean": {"$given": ["float", "nan"]}}) == '{\n  "mean": "nan"\n}'


@pytest.mark.parametrize(
    "value",
    [
        {"$file": {"ref": "https://x"}},
        {"$file": 1},
        {"$file": FILE, "more": 1},
        {"$given": ["image", "x; rm"]},
    ],
)
def test_what_only_looks_like_a_file_is_json(value: Any) -> None:
    assert "cadre files" not in as_text(value)


def test_a_terminal_gets_no_control_characters() -> None:
    assert printable("red \x1b[31m\x07\x9b1m\r end\n\tand a tab") == "red �[31m��1m� end\n\tand a tab"


def test_line_ends_and_signs_of_people_stay() -> None:
    kept = "a\r\nb\u00a0c \N{MAN}\u200d\N{PERSONAL COMPUTER} \u05d0"
    assert printable(kept) == kept
    assert printable("\u202egpj.exe") == "\N{REPLACEMENT CHARACTER}gpj.exe"


@pytest.mark.parametrize("err", [False, True])
def test_a_pipe_gets_nothing_that_a_terminal_obeys(err: bool) -> None:
    with CliRunner().isolation() as (out, errors, *_):
        print_text("red \x1b[31m end", err=err)
        assert (errors if err else out).getvalue().decode() == "red \N{REPLACEMENT CHARACTER}[31m end\n"


def test_tables_and_logs_are_text_of_others_too(tmp_path: Path) -> None:
    assert "\x1b" not in table(["NAME"], [["\x1b]0;title\x07"]])
    logs = logs_folder(tmp_path)
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "gateway.log").write_text("told \x1b[2J\n")
    shown = CliRunner().invoke(show_logs, ["gateway", "--data", str(tmp_path)])
    assert shown.output == "told \N{REPLACEMENT CHARACTER}[2J\n"


@pytest.mark.parametrize(
    ("step", "lines"),
    [
        (
            {"type": "task", "task": "Find it.", "images": ["blob:ab"]},
            ["task", "  Find it.", "  image blob:ab"],
        ),
        ({"type": "planning", "plan": "1. Look\n2. Tell\n"}, ["plan", "  1. Look\n  2. Tell"]),
        (
            {"type": "action", "number": 1, "content": "So.", "calls": [{**CALL, "observation": "a\nb"}]},
            ["step 1", "  So.", '  search {"query": "münze"}', "    a\n    b"],
        ),
        (
            {
                "type": "action",
                "number": 2,
                "calls": [CALL],
                "error": {"code": "unreadable-answer", "type": "AgentParsingError", "message": "x"},
            },
            ["step 2", '  search {"query": "münze"}', "    (open)", "  failed: AgentParsingError: x"],
        ),
        (
            {
                "type": "action",
                "number": 3,
                "calls": [{**CALL, "error": {"type": "Broken", "message": "no"}}],
            },
            ["step 3", '  search {"query": "münze"}', "    Broken: no"],
        ),
        ({"type": "answer", "output": {"n": 1}}, ["answer", '  {\n    "n": 1\n  }']),
    ],
)
def test_each_kind_of_step_is_told(step: dict[str, Any], lines: list[str]) -> None:
    assert list(steps_text([step])) == lines


@pytest.mark.parametrize(
    ("state", "asked", "started", "told"),
    [
        ("queued", 100.0, 100.0, [("queued", "boss")]),
        ("running", 100.0, 100.2, [("started", "")]),
        ("success", 100.0, 190.0, [("started", "1m30s")]),
    ],
)
def test_a_run_that_is_queued_has_not_started(
    state: str, asked: float, started: float, told: list[tuple[str, str]]
) -> None:
    run = {"id": "r", "agent": "boss", "state": state, "asked_at": asked, "started_at": started}
    lines = list(summary(run, [], full=False))
    found = [line for line in lines if line.startswith(("queued", "started"))]
    rest = [(line[:9].strip(), line[28:]) for line in found]
    assert [word for word, _ in rest] == [word for word, _ in told]
    assert all(named in more if named else not more for (_, more), (_, named) in zip(rest, told, strict=True))

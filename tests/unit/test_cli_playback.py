"""`cadre show --replay`: a run's memory as a reader follows it."""

import re
from typing import Any

import pytest

from cadre.cli.run_view.run_text import playback

USAGE = {"input_tokens": 10, "output_tokens": 2}
CHILD: dict[str, Any] = {
    "id": "r_1_0",
    "agent": "kid",
    "state": "success",
    "memory": [{"type": "task", "task": "Look."}, {"type": "answer", "output": {"found": 1}}],
}
RUN: dict[str, Any] = {
    "id": "r",
    "agent": "boss",
    "state": "success",
    "started_at": 1.0,
    "ended_at": 3.0,
    "usage": {**USAGE, "model_calls": 3, "steps": 2, "cost": 0.25},
    "children": [{"id": "r_1_0", "agent": "kid"}],
    "memory": [
        {"type": "task", "task": "Find out."},
        {"type": "planning", "plan": "1. look", "usage": USAGE},
        {
            "type": "action",
            "number": 1,
            "content": "I ask.",
            "usage": USAGE,
            "started_at": 1.0,
            "ended_at": 2.5,
            "calls": [
                {"id": "r_1_0", "name": "kid", "arguments": {"task": "Look."}, "observation": "It is 1."},
                {
                    "id": "r_1_1",
                    "name": "add",
                    "error": {"code": "tool-failed", "type": "AgentToolExecutionError", "message": "kaput"},
                },
                {"id": "r_1_2", "name": "proofread", "check": True, "observation": "true"},
            ],
        },
        {
            "type": "action",
            "number": 2,
            "content": "Thought: I add.\n<code>\nx = 1\nprint(x)\n</code>",
            "own": {"kind": "code", "code": "x = 1\nprint(x)", "observation": "Execution logs:\n1"},
            "error": {"code": "code-failed", "type": "AgentExecutionError", "message": "1 / 0"},
        },
        {"type": "answer", "output": "One."},
    ],
}


def test_everything_is_told_in_its_order() -> None:
    *told, usage = playback(RUN)
    assert "\n".join(told) == "\n".join(
        [
            "boss  r  success, 2.0s",
            "task",
            "  Find out.",
            "plan  (12 tokens)",
            "  1. look",
            "step 1  (1.5s, 12 tokens)",
            "  thought",
            "    I ask.",
            '  call kid {"task": "Look."}',
            "    It is 1.",
            "  call add {}",
            "    kaput",
            "  check proofread {}",
            "    true",
            "step 2",
            "  thought",
            "    I add.",
            "  code",
            "    x = 1",
            "    print(x)",
            "  observed",
            "    Execution logs:",
            "    1",
            "  failed",
            "    AgentExecutionError: 1 / 0",
            "answer",
            "  One.",
        ]
    )
    assert re.findall(r"[\d.]+", usage) == ["10", "2", "3", "2", "0.25"]


def test_runs_below_are_played_where_they_were_called() -> None:
    asked: list[str] = []

    def fetch(run: str) -> dict[str, Any]:
        asked.append(run)
        return CHILD

    lines = "\n".join(playback(RUN, fetch)).splitlines()
    assert asked == ["r_1_0"]
    begin = next(place for place, line in enumerate(lines) if line.startswith("    kid  r_1_0  success"))
    assert lines[begin - 1].startswith("  call kid")
    assert lines[begin + 1 : begin + 3] == ["    task", "      Look."]
    assert lines[begin + 3] == "    answer"
    assert "    It is 1." in lines[begin:], "what the manager read of it follows"


@pytest.mark.parametrize(
    ("content", "code", "thought"),
    [
        ("x = 1", "x = 1", ""),
        ("Thought: why\n```python\nx = 1\n```", "x = 1", "why"),
        ("Is a < b? <code>x = 1</code>", "x = 1", "Is a < b?"),
        ('{"thought": "so", "code": "x = 1"}', "x = 1", "so"),
        ("Two\n<code>x = 1</code> and <code>y = 2</code>", "x = 1\n\ny = 2", None),
    ],
)
def test_thought_and_code_are_told_apart(content: str, code: str, thought: str | None) -> None:
    run = {
        **RUN,
        "memory": [{"type": "action", "number": 1, "content": content, "own": {"kind": "code", "code": code}}],
    }
    text = "\n".join(playback(run))
    before_code = text.split("  code\n", maxsplit=1)[0]
    assert ("thought" in before_code) == (thought != "")
    assert (thought if thought is not None else content.splitlines()[0]) in before_code


def test_a_run_that_failed_tells_why_and_what_it_found() -> None:
    run = {
        **RUN,
        "state": "error",
        "memory": RUN["memory"][:1],
        "error": {"code": "deadline", "type": "DeadlineExceeded", "message": "too late"},
        "output": "a little",
    }
    text = "\n".join(playback(run))
    assert "ended\n  DeadlineExceeded: too late\nfound until then\n  a little\n" in text

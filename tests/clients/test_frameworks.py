"""Agents of Cadre as the models of other frameworks: plain answers, functions, forms, histories, streams."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.patience import patience
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parents[1] / "e2e" / "doors"
PYTHON = Path(__file__).parents[2] / "build" / "clients-venv" / "bin" / "python"
FRAMEWORKS = Path(__file__).parent / "frameworks.py"

TALK = [
    "Hello!",
    "It is 3 degrees and 21 degrees.",
    {"name": "Ann", "age": 41},
    "You are Iris.",
    "Hello!",
]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """The gateway of a team whose host talks with guests."""
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        stack.model(TEAM / "script.yaml")
        stack.agent(TEAM / "host.yaml", start=False)
        yield stack.open_gateway(1)


@pytest.mark.parametrize(
    ("case", "answers"),
    [
        ("openai_agents_chat", TALK),
        ("openai_agents_responses", TALK),
        ("pydantic_ai_chat", TALK),
        ("pydantic_ai_responses", TALK),
        ("smolagents_chat", [TALK[0], "I see: 3 degrees.", TALK[4]]),
    ],
)
def test_a_framework_has_an_agent_for_a_model(gateway: Gateway, case: str, answers: list[object]) -> None:
    command = [str(PYTHON), str(FRAMEWORKS), f"{gateway.service.url}/v1", case]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=patience(120), check=False)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1]) == answers

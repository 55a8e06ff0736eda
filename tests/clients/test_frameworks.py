"""Agents of Cadre as the models of other programs' clients: plain answers, functions, forms, histories, streams."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clients.versions import INSTRUCTOR_PYTHON, NODE, PACKAGES, PYTHON
from harness.patience import patience
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parents[1] / "e2e" / "doors"
HERE = Path(__file__).parent
CHAT, RESPONSES = "chat completions", "responses"

PERSON = {"name": "Ann", "age": 41}
TALK = ["Hello!", "It is 3 degrees and 21 degrees.", PERSON, "You are Iris.", "Hello!"]
HANDED_OVER = [["clerk", True], ["clerk", True]]
ALL = "answers, streams, functions, structured output, histories"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """The gateway of a team whose host talks with guests, and hands over to the clerk."""
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        stack.environment["CADRE_DOORS"] = "openai,mcp"
        stack.model(TEAM / "script.yaml")
        for name in ("chief", "clerk", "host"):
            stack.agent(TEAM / f"{name}.yaml", start=False)
        stack.tools(TEAM / "tools.py", start=False)
        yield stack.open_gateway(3)


def told_by(*command: object, folder: Path | None = None) -> object:
    """Return what the program prints last, as JSON."""
    ended = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=patience(120),
        check=False,
        cwd=folder,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def case(name: str, packages: str, door: str, shows: str, answers: object) -> Any:
    """The case of one client, or of some that are used together."""
    marks = [pytest.mark.client(package, door, shows) for package in packages.split()]
    return pytest.param(name, answers, marks=marks, id=name)


@pytest.mark.parametrize(
    ("name", "answers"),
    [
        case("openai_sdk", "openai", CHAT, "answers", [*TALK[:1], "Hello!", "You are Iris.", "text", 4]),
        case(
            "openai_sdk_responses",
            "openai",
            RESPONSES,
            "streams, conversations, files",
            [*TALK[:1], "Hello!", "You are Iris.", "text", 4],
        ),
        case("openai_agents_chat", "openai-agents", CHAT, ALL, TALK),
        case("openai_agents_responses", "openai-agents", RESPONSES, ALL, TALK),
        case("openai_agents_handoff", "openai-agents", RESPONSES, "handoffs between agents", HANDED_OVER),
        case("pydantic_ai_chat", "pydantic-ai-slim", CHAT, ALL, TALK),
        case("pydantic_ai_responses", "pydantic-ai-slim", RESPONSES, ALL, TALK),
        case("langchain_chat", "langchain-openai", CHAT, ALL, [*TALK[:3], PERSON, *TALK[3:]]),
        case("langchain_responses", "langchain-openai", RESPONSES, ALL, [*TALK[:3], PERSON, *TALK[3:]]),
        case(
            "litellm_chat",
            "litellm",
            CHAT,
            "answers, streams, functions, responses",
            ["Hello!", "Hello!", "It is 3 degrees.", "Hello!"],
        ),
        case("instructor_default", "instructor", CHAT, "structured output by a forced call", PERSON),
        case(
            "smolagents_chat",
            "smolagents",
            CHAT,
            "answers, streams, functions",
            [TALK[0], "I see: 3 degrees.", TALK[4]],
        ),
        case("fastmcp_client", "fastmcp", "MCP", "agents as tools", [["chief", "clerk", "host"], "Hello!"]),
    ],
)
def test_a_client_in_python(gateway: Gateway, name: str, answers: object) -> None:
    python = INSTRUCTOR_PYTHON if name.startswith("instructor") else PYTHON
    assert told_by(python, HERE / "frameworks.py", f"{gateway.service.url}/v1", name) == answers


AI_SDK = ["Hello!", "It is 3 degrees and 21 degrees.", PERSON, "Hello!"]


@pytest.mark.skipif(not NODE.is_file(), reason="make test-clients had no npm to install the clients with")
@pytest.mark.parametrize(
    ("name", "answers"),
    [
        case(
            "openai",
            "npm:openai",
            RESPONSES,
            "answers, streams, conversations, files",
            ["Hello!", "Hello!", "You are Iris.", 4, "text", True],
        ),
        case("openai-agents", "npm:@openai/agents", RESPONSES, "handoffs between agents", HANDED_OVER),
        case(
            "ai-sdk",
            "npm:ai npm:@ai-sdk/openai npm:@ai-sdk/openai-compatible",
            CHAT,
            ALL.removesuffix(", histories"),
            [AI_SDK] * 3,
        ),
    ],
)
def test_a_client_for_node(gateway: Gateway, tmp_path: Path, name: str, answers: object) -> None:
    script = tmp_path / "openai_clients.mjs"
    script.write_text((HERE / script.name).read_text())
    (tmp_path / "node_modules").symlink_to(PACKAGES)
    assert told_by(NODE, script, name, f"{gateway.service.url}/v1") == answers

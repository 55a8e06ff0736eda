"""Tests of when `cadre up` starts a memory service, what `cadre doctor` says of it, and that its command serves or
looks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cadre.adapters.local_stack import Ports
from cadre.cli.team.doctor import memory
from cadre.deploy.k8s.values import Values
from cadre.deploy.team_components import components_of
from cadre.local.processes import Stack
from unit.played_gateway import cadre, playing
from unit.team_files import write_team


@pytest.mark.parametrize(
    ("more", "remembers"),
    [
        ("", False),
        ("tools: [look]", False),
        ("tools: [recall]", True),
        ("tools: [look, forget_memory]", True),
        ("memory: {recall: 3}", True),
        ("memory: {remember: steps, scope: user}", True),
    ],
)
def test_a_team_that_remembers_gets_a_memory_service(tmp_path: Path, more: str, remembers: bool) -> None:
    team = write_team(tmp_path, {"a": "", "b": more})
    assert team.needs_memory == remembers
    stack = Stack(tmp_path / "data", team, Ports(gateway=1, nats=2, model=3), lambda name, line: None)
    started = {service.name: service for service in stack.services()}
    assert ("memory" in started) == remembers
    assert ("memory" in [component.role for component in components_of(team, Values())]) == remembers
    if remembers:
        service = started["memory"]
        assert list(service.argv)[1:] == ["-m", "cadre_memory"]
        assert service.environment["CADRE_MEMORY_DIRECTORY"] == str(tmp_path / "data" / "memory")


def cadre_memory(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CADRE_")}
    return subprocess.run(
        [sys.executable, "-m", "cadre_memory", *arguments],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_says_what_it_would_compare_and_asks_the_endpoint_for_it() -> None:
    words = cadre_memory("--check", "--embeddings", "none")
    assert (words.returncode, words.stderr) == (3, "")
    assert ".cadre/memory" in words.stdout
    verdict, text = memory(words.returncode, words.stdout, words.stderr)
    assert (verdict, "CADRE_MEMORY_EMBEDDINGS_URL" in text) == ("warn", True)
    variables = {
        "CADRE_MEMORY_EMBEDDINGS_URL": "http://key@127.0.0.1:1/v1",
        "CADRE_MEMORY_EMBEDDINGS_MODEL": "m-1",
    }
    endpoint = cadre_memory("--check", **variables)
    assert endpoint.returncode == 5
    assert "embeddings m-1 at the embeddings endpoint http://127.0.0.1:1/v1" in endpoint.stdout
    verdict, text = memory(endpoint.returncode, endpoint.stdout, endpoint.stderr)
    assert verdict == "fail"
    assert "cannot reach the embeddings endpoint http://127.0.0.1:1/v1: connection refused" in text


@pytest.mark.parametrize("output", ["table", "json"])
def test_what_an_older_service_leaves_out_is_told(monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    about = {
        "memory": "r_1_0",
        "scope": "user",
        "run": "r",
        "agent": "a",
        "kind": "note",
        "at": 1.0,
        "count": 4,
    }
    chunks = [{**about, "id": str(index), "index": index, "text": f"Part {index}."} for index in (0, 2)]
    with playing(monkeypatch) as gateway:
        gateway.answer("GET /v1/memory/r_1_0", {"memories": chunks, "next": None})
        printed = cadre("memory", "show", "r_1_0", "-o", output)
    assert printed.exit_code == 1
    assert "Part 2." in printed.stdout
    assert "2 of its 4" in printed.stderr


def test_wrong_settings_end_it_with_one_line() -> None:
    wrong = cadre_memory(CADRE_MEMORY_EMBEDDINGS="openai")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == "cadre: CADRE_MEMORY_EMBEDDINGS=openai needs CADRE_MEMORY_EMBEDDINGS_URL\n"
    verdict, text = memory(wrong.returncode, wrong.stdout, wrong.stderr)
    assert (verdict, "needs CADRE_MEMORY_EMBEDDINGS_URL" in text) == ("warn", True)


def test_looking_needs_none_of_the_services_libraries() -> None:
    code = (
        "import sys; from cadre.cli.main import group; group.get_command(None, 'memory');"
        "print({'numpy', 'qdrant_client', 'qdrant_edge', 'semantic_text_splitter', 'nats'} & {*sys.modules})"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "set()"

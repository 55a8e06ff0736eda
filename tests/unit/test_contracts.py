"""Each import contract of pyproject.toml is kept, and fails when it is broken."""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

VIOLATIONS = {
    "layers": [
        ("shared/cadre/protocol/messages.py", "import cadre.runtime.runner"),
        ("shared/cadre/a_room_without_a_place.py", "import cadre.errors"),
    ],
    "gateway": [
        ("services/cadre_gateway/retention/janitor.py", "import cadre_gateway.steering.erase"),
        ("services/cadre_gateway/a_room_without_a_place.py", "import cadre_gateway.index"),
    ],
    "memory": [
        ("services/cadre_memory/text/bm25.py", "import cadre_memory.index.vector_index"),
        ("services/cadre_memory/a_room_without_a_place.py", "import cadre_memory.text"),
    ],
    "services": [("services/cadre_agent/main.py", "import cadre_tools.host")],
    "library": [
        ("shared/cadre/runtime/run_cache.py", "import cadre_gateway.index.run_index"),
        ("shared/cadre/service/frame.py", "import fastapi"),
    ],
    "jail": [
        ("services/cadre_sandbox/jail/block.py", "import cadre.errors"),
        ("services/cadre_sandbox/wire/frames.py", "import msgspec"),
    ],
    "sandbox": [
        ("services/cadre_sandbox/jail/guard.py", "import cadre_sandbox.interpreters.session"),
        ("services/cadre_sandbox/interpreters/session.py", "import cadre_sandbox.jail.confinement.kernel"),
        ("services/cadre_sandbox/wire/frames.py", "import cadre_sandbox.serving.request"),
        ("services/cadre_sandbox/a_room_without_a_place.py", "import cadre_sandbox.wire"),
    ],
    "outside": [("services/cadre_sandbox/host.py", "import cadre_sandbox.jail.snapshot")],
    "pickle": [("services/cadre_sandbox/interpreters/session.py", "import pickle")],
    "pure": [
        ("shared/cadre/loop/transition.py", "import time"),
        ("shared/cadre/engine/chat.py", "import logging"),
    ],
    "nats": [
        ("shared/cadre/runtime/runner.py", "import nats"),
        ("services/cadre_gateway/starting/admission.py", "import nats.js"),
    ],
    "openai": [("shared/cadre/adapters/models/openai_model.py", "import openai")],
    "mcp": [("shared/cadre/local/team/tool_entries.py", "import mcp")],
    "doors": [
        ("services/cadre_gateway/doors/mcp/outcome.py", "import cadre_gateway.doors.openai.turn"),
        ("services/cadre_gateway/doors/openai/turn.py", "import cadre_gateway.doors.mcp.outcome"),
        ("services/cadre_gateway/doors/a2a/card.py", "import cadre_gateway.doors.agui.events"),
        ("services/cadre_gateway/doors/synadia/settings.py", "import cadre_gateway.doors.a2a.card"),
    ],
    "synadia": [("services/cadre_gateway/doors/sender.py", "import synadia_ai.agents")],
    "acp": [("shared/cadre/adapters/acp/work.py", "import acp")],
    "kubernetes": [("services/cadre_agent/main.py", "import kopf")],
    "qdrant": [("services/cadre_memory/operations/search.py", "import qdrant_client")],
    "postgres": [("services/cadre_gateway/index/run_index.py", "import psycopg")],
    "edge": [
        ("services/cadre_memory/index/memory_index.py", "import qdrant_edge"),
        ("services/cadre_memory/index/edge/store.py", "import qdrant_edge"),
    ],
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of all code that may be broken."""
    copy = tmp_path_factory.mktemp("tree")
    for room in ("shared", "services"):
        shutil.copytree(ROOT / room, copy / room, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


@pytest.fixture
def plant(tree: Path) -> Iterator[list[tuple[Path, str | None]]]:
    """Files to put back, each with its former text; None for one that was not there."""
    planted: list[tuple[Path, str | None]] = []
    yield planted
    for file, text in planted:
        if text is None:
            file.unlink()
        else:
            file.write_text(text)


def lint(tree: Path, *contracts: str) -> str:
    options = [part for contract in contracts for part in ("--contract", contract)]
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command as c; c()",
            "--no-logo",
            *options,
        ],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": f"{tree / 'shared'}:{tree / 'services'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout + done.stderr


def test_every_contract_is_kept(tree: Path) -> None:
    output = lint(tree)
    assert f"Contracts: {len(VIOLATIONS)} kept, 0 broken." in output, output


def test_every_contract_has_a_violation_here() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert {contract["id"] for contract in contracts} == set(VIOLATIONS)


@pytest.mark.parametrize(
    ("contract", "file", "line"),
    [
        pytest.param(contract, file, line, id=f"{contract}: {Path(file).stem} {line}")
        for contract, plants in VIOLATIONS.items()
        for file, line in plants
    ],
)
def test_a_violation_breaks_its_contract(
    tree: Path, plant: list[tuple[Path, str | None]], contract: str, file: str, line: str
) -> None:
    target = tree / file
    before = target.read_text() if target.exists() else None
    plant.append((target, before))
    target.write_text(f"{before or ''}\n{line}\n")
    output = lint(tree, contract)
    assert "0 kept, 1 broken." in output, output

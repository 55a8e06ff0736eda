"""Each import contract of pyproject.toml is kept, and fails when it is broken."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

VIOLATIONS = {
    "layers": [
        ("shared/cadre/protocol/messages.py", "import cadre.runtime.runner"),
        ("shared/cadre/a_room_without_a_place.py", "import cadre.errors"),
    ],
    "spans-of-kinds": [("shared/cadre/kinds/plan/kind.py", "import cadre.telemetry.tracing.names")],
    "gateway": [
        ("services/cadre_gateway/retention.py", "import cadre_gateway.steering.run_end"),
        ("services/cadre_gateway/a_room_without_a_place.py", "import cadre_gateway.index"),
    ],
    "memory": [
        ("services/cadre_memory/bm25.py", "import cadre_memory.index.vector_index"),
        ("services/cadre_memory/a_room_without_a_place.py", "import cadre_memory.bm25"),
    ],
    "services": [("services/cadre_agent/main.py", "import cadre_tools.host")],
    "machine": [
        ("services/cadre_operator/desired.py", "import cadre.local.nats_server"),
        ("services/cadre_tools/host.py", "import cadre.cli.main"),
    ],
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
        ("services/cadre_sandbox/wire/frames.py", "import cadre_sandbox.serving.exchange"),
        ("services/cadre_sandbox/a_room_without_a_place.py", "import cadre_sandbox.wire"),
    ],
    "outside": [("services/cadre_sandbox/host.py", "import cadre_sandbox.jail.snapshot")],
    "pickle": [("services/cadre_sandbox/interpreters/session.py", "import pickle")],
    "pure": [
        ("shared/cadre/loop/decide.py", "import time"),
        ("shared/cadre/engine/chat.py", "import logging"),
    ],
    "nats": [
        ("shared/cadre/runtime/runner.py", "import nats"),
        ("services/cadre_gateway/starting/admission.py", "import nats.js"),
    ],
    "openai": [("shared/cadre/adapters/models/openai_model.py", "import openai")],
    "mcp": [("shared/cadre/adapters/tool_entries.py", "import mcp")],
    "doors": [
        ("services/cadre_gateway/doors/mcp/tools.py", "import cadre_gateway.doors.openai.turn_request"),
        ("services/cadre_gateway/doors/openai/turn_request.py", "import cadre_gateway.doors.mcp.tools"),
        ("services/cadre_gateway/doors/a2a/bindings.py", "import cadre_gateway.doors.agui.events"),
        ("services/cadre_gateway/doors/synadia/door.py", "import cadre_gateway.doors.a2a.card"),
    ],
    "synadia": [("services/cadre_gateway/doors/sender.py", "import synadia_ai.agents")],
    "acp": [("shared/cadre/adapters/acp/work.py", "import acp")],
    "kubernetes": [("services/cadre_agent/main.py", "import kopf")],
    "qdrant": [("services/cadre_memory/operations/search.py", "import qdrant_client")],
    "postgres": [("services/cadre_gateway/index/run_index.py", "import psycopg")],
    "edge": [("services/cadre_memory/index/memory_index.py", "import qdrant_edge")],
}


CONTRACTS: dict[str, str] = {
    contract["id"]: contract["name"]
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
}


def copied(copy: Path) -> Path:
    """A copy of all code that may be broken."""
    for room in ("shared", "services"):
        shutil.copytree(ROOT / room, copy / room, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what is said of each contract, by its id, once all violations are planted."""
    tree = copied(tmp_path_factory.mktemp("tree"))
    for file, line in (plant for plants in VIOLATIONS.values() for plant in plants):
        target = tree / file
        target.write_text(f"{target.read_text() if target.exists() else ''}\n{line}\n")
    _, _, output = " ".join(lint(tree).split()).partition("Broken contracts")
    begins = sorted((output.find(f"{name} ---"), id) for id, name in CONTRACTS.items())
    ends = [begin for begin, _ in begins[1:]] + [len(output)]
    return {id: output[begin:end] for (begin, id), end in zip(begins, ends, strict=True) if begin >= 0}


def lint(tree: Path) -> str:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command as c; c()",
            "--no-logo",
        ],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": f"{tree / 'shared'}:{tree / 'services'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout + done.stderr


def test_every_contract_is_kept(tmp_path: Path) -> None:
    output = lint(copied(tmp_path))
    assert f"Contracts: {len(VIOLATIONS)} kept, 0 broken." in output, output


def test_every_contract_has_a_violation_here() -> None:
    assert CONTRACTS.keys() == VIOLATIONS.keys()


@pytest.mark.parametrize(
    ("contract", "file", "line"),
    [
        pytest.param(contract, file, line, id=f"{contract}: {Path(file).stem} {line}")
        for contract, plants in VIOLATIONS.items()
        for file, line in plants
    ],
)
def test_a_violation_breaks_its_contract(reported: dict[str, str], contract: str, file: str, line: str) -> None:
    module = ".".join(Path(file).with_suffix("").parts[1:])
    named = line.removeprefix("import ")
    if "without_a_place" in file:
        assert f"not listed as layers: - {module}" in reported[contract]
    else:
        # Other packages are named by their first part.
        links = (f"{module} -> {named} (l.", f"{module} -> {named.partition('.')[0]} (l.")
        assert any(link in reported[contract] for link in links), reported[contract]

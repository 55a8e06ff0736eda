"""The console's pure modules under node, and what its page may not do."""

import json
import re
import shutil
import subprocess
import warnings
from pathlib import Path

import msgspec
import pytest

from cadre.kinds.workflow.edges import all_edges
from cadre.kinds.workflow.section import WorkflowStep, workflow_of
from cadre.spec.agent_file import read_agent
from cadre_gateway.routes.app import load_assets
from harness.patience import patience

ROOT = Path(__file__).parents[2]


def test_its_pure_modules_under_node() -> None:
    node = shutil.which("node")
    if node is None:
        warnings.warn(pytest.PytestWarning("no node: the console's reducer is not tested"), stacklevel=1)
        pytest.skip("no node on PATH: the console's reducer is NOT tested")
    files = sorted((ROOT / "tests" / "console").glob("*.test.mjs"))
    done = subprocess.run(
        [node, "--test", *map(str, files)],
        capture_output=True,
        text=True,
        timeout=patience(120),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^# pass [1-9]", done.stdout, re.MULTILINE), done.stdout


def test_content_goes_into_the_page_as_text_only() -> None:
    modules = {path: asset.data.decode() for path, asset in load_assets().items() if path.endswith(".js")}
    assert len(modules) > 10
    for path, text in modules.items():
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", text), (
            path
        )


def test_numbers_pass_through_the_reader_that_keeps_their_digits() -> None:
    """JSON.parse rounds integers beyond 2^53, and an answer's `json()` the same."""
    modules = {path: asset.data.decode() for path, asset in load_assets().items() if path.endswith(".js")}
    assert "JSON.parse(raw)" in modules.pop("exact_json.js")
    rounding = re.compile(r"\bJSON\s*\.\s*(?:parse|stringify)|\.json\(\)|structuredClone")
    assert [path for path, text in modules.items() if rounding.search(text)] == []


def test_every_module_that_is_imported_is_served() -> None:
    assets = load_assets()
    for path, asset in assets.items():
        for name in re.findall(r"""(?:from|import\()\s*"(\.[^"]+)\"""", asset.data.decode()):
            target = (Path("/") / path).parent / name
            assert str(Path(*_resolved(target))) in assets, f"{path} imports {name}"


def _resolved(path: Path) -> list[str]:
    parts: list[str] = []
    for part in path.parts[1:]:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return parts


def test_its_drawing_of_a_workflow_has_the_ways_that_the_workflow_takes() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on PATH: the console's graph is NOT tested")
    steps = {
        **msgspec.to_builtins(workflow_of(read_agent(ROOT / "teams" / "purchases" / "buyer.yaml")).steps),
        "short": {"choose": [{"if": "a", "next": "x"}, {"if": "b", "next": "y"}]},
        "ask": {
            "ask": "?",
            "route": {"instruction": "?", "options": {"p": "x"}, "default": "y"},
            "undo": "z",
        },
        "list": {"each": {"items": "items", "step": "x"}, "when": [{"if": "c", "next": "y"}], "next": "z"},
        "over": {"end": "done", "on_error": "x"},
    }
    expected = {
        name: [list(edge) for edge in all_edges(msgspec.convert(step, WorkflowStep))] for name, step in steps.items()
    }
    assert sum(map(len, expected.values())) > 20
    module = ROOT / "services" / "cadre_gateway" / "console" / "web" / "state" / "workflow.js"
    program = f"""
        import {{ edgesOf }} from {json.dumps(module.as_uri())};
        const ways = (step) => edgesOf(step).map((edge) => [edge.key, edge.target, edge.label]);
        const found = Object.entries({json.dumps(steps)}).map(([name, step]) => [name, ways(step)]);
        console.log(JSON.stringify(Object.fromEntries(found)));
    """
    done = subprocess.run(
        [node, "--input-type=module", "-e", program],
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=True,
    )
    assert json.loads(done.stdout) == expected

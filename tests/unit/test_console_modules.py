"""The console's pure modules under node, and what its page may not do."""

import re
import shutil
import subprocess
import warnings
from pathlib import Path

import pytest

from cadre_gateway.console.assets import load_assets
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
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", text
        ), path


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

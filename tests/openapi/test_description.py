"""The description of the API as linters read it: Redocly and Spectral find no error, with keys and without."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.patience import patience
from harness.stack import Gateway, Stack

TOOLS = Path(__file__).parents[2] / "build" / "openapi-linters" / "node_modules" / ".bin"
ADMIN_KEY = "0123456789abcdef" * 4

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module", params=["off", "keys"])
def description(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file of the description that a gateway answers."""
    folder = tmp_path_factory.mktemp("stack")
    with Stack(folder) as stack:
        admin = ADMIN_KEY if request.param == "keys" else ""
        service = stack.add("gateway", "cadre_gateway", CADRE_AUTH=request.param, CADRE_ADMIN_KEY=admin)
        gateway = Gateway(service)
        file = folder / "openapi.json"
        file.write_bytes(gateway.request("GET", "/openapi.json").content)
        yield file


def lint(*command: str | Path) -> None:
    ended = subprocess.run([*command], capture_output=True, text=True, timeout=patience(180), check=False, cwd=TOOLS)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_redocly_finds_no_error(description: Path) -> None:
    lint(TOOLS / "redocly", "lint", description, "--extends", "recommended")


def test_spectral_finds_no_error(description: Path) -> None:
    rules = description.with_name("spectral.yaml")
    rules.write_text('extends: ["spectral:oas"]\n')
    lint(TOOLS / "spectral", "lint", description, "--ruleset", rules, "--fail-severity", "error")


def test_it_says_where_the_api_is_who_may_call_it_and_what_else_there_is(description: Path) -> None:
    found = json.loads(description.read_text())
    assert found["servers"] == [{"url": "/"}]
    assert found["security"] in ([{}], [{"key": []}, {"session": []}])
    schemes = found["components"]["securitySchemes"]
    assert (schemes["key"]["scheme"], schemes["session"]["in"]) == ("bearer", "cookie")
    assert found["paths"]["/v1/sign-in"]["get"]["security"] == [], "anybody may ask"
    doors = {one["name"]: one["externalDocs"]["url"] for one in found["tags"] if "externalDocs" in one}
    assert set(doors) == {"openai", "a2a", "agui"}, "those that are open"
    assert all(url.startswith("https://") for url in doors.values())

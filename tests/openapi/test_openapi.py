"""The HTTP API against its own description: schemathesis tries every operation of /openapi.json, with data that fits
and data that does not. Nothing is answered with 500, every status, media type and body is as described."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.stack import Gateway, Stack

ROOT = Path(__file__).parents[2]
SCHEMATHESIS = ROOT / "build" / "openapi-venv" / "bin" / "schemathesis"
TEAM = Path(__file__).parents[1] / "e2e" / "team"
ADMIN_KEY = "0123456789abcdef" * 4
SECONDS = 90

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "unsupported_method",
)

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A team at work, with a memory service, a run that has ended and one that waits for a person."""
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        stack.model(TEAM / "script.yaml")
        for name in ("boss", "worker", "helper"):
            stack.agent(TEAM / f"{name}.yaml", start=False)
        stack.tools(TEAM / "tools.py", start=False)
        stack.add("memory", "cadre_memory", start=False, CADRE_MEMORY_DIRECTORY=str(stack.folder / "memory"))
        gateway = stack.open_gateway(3)
        gateway.answer("helper", "say hello")
        yield stack


@pytest.mark.parametrize("auth", ["off", "keys"])
def test_the_api_is_as_it_is_described(stack: Stack, auth: str) -> None:
    admin = ADMIN_KEY if auth == "keys" else ""
    service = stack.add(f"gateway-{auth}", "cadre_gateway", CADRE_AUTH=auth, CADRE_ADMIN_KEY=admin)
    gateway = Gateway(service)
    argv = [
        str(SCHEMATHESIS),
        *("run", f"{gateway.service.url}/openapi.json", "--checks", ",".join(CHECKS)),
        *("--phases", "examples,coverage,fuzzing", "--max-time", str(SECONDS), "--seed", "1", "--no-color"),
        *("--continue-on-failure", "--request-timeout", "60", "--max-examples", "15"),
        # It cannot make archives of runs; others do (tests/e2e/test_archive.py).
        *("--exclude-path", "/v1/runs/import"),
        *(("-H", f"Authorization: Bearer {ADMIN_KEY}") if auth == "keys" else ()),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=stack.folder)
    assert done.returncode == 0, done.stdout + done.stderr + gateway.service.log.read_text()[-4000:]
    assert "Traceback" not in gateway.service.log.read_text()
    gateway.service.terminate()

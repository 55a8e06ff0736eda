"""Clients that generators make from /openapi.json: Python and TypeScript, more than ten calls each with a key."""

import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

from harness.patience import eventually, patience
from harness.stack import Gateway, Stack

HERE = Path(__file__).parent
TEAM = HERE.parent / "e2e" / "doors"
GENERATED = HERE.parents[1] / "build" / "generated-clients"
ADMIN_KEY = "0123456789abcdef" * 4
TOLD: dict[str, Any] = {
    "keys": True,
    "refused": [401, "unauthorized"],
    "name": "admin",
    "revoked": True,
    "agents": ["chief", "clerk", "host"],
    "verdict": "rejected",
    "output": "Hello!",
    "state": "success",
    "gone": 204,
    "schedule": ["nightly", True],
    "unknown": "unknown-run",
}


class Signed(Gateway):
    """The gateway as an administrator uses it."""

    def request(self, method: str, path: str, **options: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {ADMIN_KEY}"} | options.pop("headers", {})
        return super().request(method, path, headers=headers, **options)


@pytest.fixture
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Signed]:
    """A gateway that asks for keys."""
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        stack.model(TEAM / "script.yaml")
        for name in ("chief", "clerk", "host"):
            stack.agent(TEAM / f"{name}.yaml", start=False)
        stack.tools(TEAM / "tools.py", start=False)
        service = stack.add("gateway", "cadre_gateway", start=False, CADRE_AUTH="keys", CADRE_ADMIN_KEY=ADMIN_KEY)
        stack.start_all()
        gateway = Signed(service)
        gateway.wait_offered(3)
        yield gateway


def waiting(gateway: Signed, books: Path) -> str:
    """A call that waits for a person."""
    gateway.submit("clerk", f"refund {books} 500")
    calls: list[str] = []

    def there() -> bool:
        found = gateway.request("GET", "/v1/approvals").json()["approvals"]
        calls[:] = [one["call"] for one in found]
        return len(calls) == 1

    eventually(there, what="the call waits for a person")
    return calls[0]


def done(command: Sequence[str | Path], folder: Path) -> str:
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=patience(180), check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def check(told: str, call: str) -> None:
    found = json.loads(told.splitlines()[-1])
    assert found.pop("asked") == [call]
    assert found.pop("runs") is True
    assert "refund" in found.pop("tools")
    assert found == TOLD


def described(gateway: Signed, folder: Path) -> Path:
    file = folder / "openapi.json"
    file.write_bytes(gateway.request("GET", "/openapi.json").content)
    return file


def test_a_python_client(gateway: Signed, tmp_path: Path) -> None:
    python = GENERATED / "bin" / "python"
    make: list[str | Path] = [
        "--path",
        described(gateway, tmp_path),
        "--output-path",
        tmp_path / "cadre_api",
        "--meta",
        "none",
    ]
    made = done([python, "-m", "openapi_python_client", "generate", *make], tmp_path)
    assert "Endpoint will not be generated" not in made.replace("\n", " ")
    script = shutil.copy(HERE / "generated_client.py", tmp_path)
    call = waiting(gateway, tmp_path / "books")
    check(done([python, script, gateway.service.url, ADMIN_KEY, call], tmp_path), call)


def test_a_typescript_client(gateway: Signed, tmp_path: Path) -> None:
    modules = GENERATED / "node_modules"
    if not modules.exists():
        pytest.skip("no npm: the client in TypeScript is NOT tested")
    tools = modules / ".bin"
    (tmp_path / "node_modules").symlink_to(modules)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    script = shutil.copy(HERE / "generated_client.ts", tmp_path)
    done([tools / "openapi-typescript", described(gateway, tmp_path), "-o", tmp_path / "api.d.ts"], tmp_path)
    strictly = ["--strict", "--module", "nodenext", "--target", "es2022", "--types", "node", "--skipLibCheck"]
    done([tools / "tsc", *strictly, script], tmp_path)
    call = waiting(gateway, tmp_path / "books")
    compiled = tmp_path / "generated_client.js"
    check(done(["node", compiled, gateway.service.url, ADMIN_KEY, call], tmp_path), call)

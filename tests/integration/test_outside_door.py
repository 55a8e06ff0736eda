"""A door of another distribution works like Cadre's own: it is the one that docs/architecture.md shows."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from fastapi import APIRouter

from cadre.errors import SetupError
from cadre_gateway.access.rules import RouteRule, rules_of_path
from cadre_gateway.doors.declaration import Door
from cadre_gateway.doors.open_doors import routers_of, rules_with
from harness.nats_server import NatsServer
from integration.gateway_world import GatewayProcess, new_run

PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text().partition("## Add a door")[2]
ADMIN = {"Authorization": "Bearer " + "adminkey" * 6}


def block(language: str) -> str:
    [found] = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)
    return str(found)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with what the page shows, as an installer would leave it there."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "echo_door.py").write_text(block("python"))
    about = folder / "echo_door-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: echo-door\nVersion: 1.0\n")
    [(group, named)] = tomllib.loads(block("toml"))["project"]["entry-points"].items()
    lines = "".join(f"{name} = {where}\n" for name, where in named.items())
    (about / "entry_points.txt").write_text(f"[{group}]\n{lines}")
    return folder


@pytest.fixture(scope="module")
def gateway(nats_server: NatsServer, site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    environment = {"CADRE_AUTH": "keys", "CADRE_ADMIN_KEY": "adminkey" * 6, "CADRE_DOORS": "openai,echo"}
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    folder = tmp_path_factory.mktemp("echo")
    one = GatewayProcess(nats_server.url, folder, None, **environment, PYTHONPATH=path)
    yield one
    one.kill()


def key_of(gateway: GatewayProcess, role: str) -> dict[str, str]:
    made = httpx2.post(f"{gateway.url}/v1/keys", json={"name": f"a-{role}", "roles": [role]}, headers=ADMIN)
    assert made.status_code == 201, made.text
    return {"Authorization": f"Bearer {made.json()['token']}"}


def test_a_door_from_outside_is_held_to_its_rules_and_recorded(gateway: GatewayProcess) -> None:
    viewer, run = key_of(gateway, "viewer"), new_run()
    assert httpx2.get(f"{gateway.url}/echo/agents").status_code == 401
    assert httpx2.get(f"{gateway.url}/echo/agents", headers=viewer).json() == []
    refused = httpx2.post(f"{gateway.url}/echo/runs/{run}", content="hello", headers=viewer)
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    said = httpx2.post(f"{gateway.url}/echo/runs/{run}", content="hello", headers=ADMIN)
    assert said.status_code == 200, said.text
    assert (said.json()["run"], said.json()["said"]) == (run, "hello")
    audit = httpx2.get(f"{gateway.url}/v1/audit?action=echo.say", headers=ADMIN).json()
    newest = audit["entries"] if isinstance(audit, dict) else audit
    assert [(one["target"], one["status"]) for one in newest] == [(run, 200), (run, 403)]
    assert newest[0]["detail"] == {"characters": "5"}
    assert httpx2.get(f"{gateway.url}/v1/models", headers=viewer).status_code == 200, "Cadre's own are open too"


def test_a_name_that_no_door_has_ends_the_gateway_with_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from cadre_gateway.doors.open_doors import open_doors; open_doors()"],
        env={"CADRE_DOORS": "echo", "PATH": "", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "SettingError: CADRE_DOORS=echo" in done.stderr


@pytest.mark.parametrize(
    "door",
    [
        Door("mine", rules=rules_of_path("/v1/keys", "none", get="public")),
        Door("mine", rules=rules_of_path("/v1/runs/{id}", "none", get="public")),
        Door("mine", rules=rules_of_path("/v1/models", "none", get="public")),
        Door("mine", actions={"POST /mine": "mine.call"}),
    ],
)
def test_a_door_that_claims_what_is_not_its_own_is_refused(door: Door) -> None:
    with pytest.raises(SetupError, match="the door mine"):
        rules_with([door])


def bare_router(runs: object) -> APIRouter:
    routes = APIRouter()
    routes.add_api_route("/mine", bare_router, methods=["GET"], response_model=None)
    return routes


def test_a_route_without_a_rule_is_refused() -> None:
    door = Door("mine", router=f"{__name__}:bare_router", rules=[RouteRule("POST", "/mine", "act", "none")])
    with pytest.raises(SetupError, match="GET /mine"):
        routers_of([door], None, None)  # type: ignore[arg-type]

"""`make test-compose`: the image built, the compose file up, the demo task done, stopped, and up again with all it had.

Needs an engine with Compose (`docker compose version`). `--override FILE` lays another compose file over the shipped
one, for mirrors; `--without SERVICE` leaves one out whose image cannot be had, and nobody may need it who is not left
out as well.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx2

from cadre.deploy.team_file import read_team
from containers.bus_users import check_keys, check_trespass
from containers.engine import ROOT, Compose, NoEngine, find_engine
from harness.nats_server import free_port
from harness.patience import eventually

CONFINED = """
import json, os
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
print(json.dumps({"uid": os.getuid(), "capabilities": int(status["CapEff"], 16), "no_new": status["NoNewPrivs"],
    "writable": os.access("/", os.W_OK) or os.access("/opt/cadre", os.W_OK)}))
"""
READY = """
import urllib.request
print(urllib.request.urlopen("http://127.0.0.1:8080/readyz", timeout=5).read().decode())
"""
REACHES = """
import json, socket
def reaches(host, port):
    try:
        socket.create_connection((host, port), timeout=3).close()
    except OSError:
        return False
    return True
print(json.dumps([reaches("nats", 4222), reaches("qdrant", 6333)]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="make test-compose", description=__doc__)
    parser.add_argument("--override", type=Path, action="append", default=[])
    parser.add_argument("--without", action="append", default=[], metavar="SERVICE")
    options = parser.parse_args()
    port = free_port()
    environment = {**os.environ, "CADRE_GATEWAY_PORT": str(port)}
    try:
        print(f"engine {find_engine(environment)}")
    except NoEngine as error:
        raise SystemExit(
            f"test-compose: not tried: {error}; start a container engine with Compose"
        ) from error
    compose = Compose([file.resolve() for file in options.override], environment)
    services = [name for name in compose.services() if name not in options.without]
    try:
        attempt(compose, services, f"http://127.0.0.1:{port}")
    finally:
        compose("down", "--volumes", "--timeout", "40")
    left_out = f"; not tried: {', '.join(options.without)}" if options.without else ""
    print(f"test-compose: all is well{left_out}")


def attempt(compose: Compose, services: list[str], gateway: str) -> None:
    up = ("up", "--detach", "--build", "--wait", "--wait-timeout", "300", *services)
    begun = time.monotonic()
    compose(*up)
    for once in ("auth", "provision"):
        assert compose.exit_code(once) == 0, compose("logs", once)
    print(f"{len(services)} services are healthy, or done, after {time.monotonic() - begun:.0f} s")
    for service in sorted({"gateway", "manager", "documents", "sandbox", "memory"} & set(services)):
        found = compose.inside(service, CONFINED)
        assert found == {"uid": 10001, "capabilities": 0, "no_new": "1", "writable": False}, (service, found)
    print("services run as 10001, without capabilities, on a root that they cannot write")
    if "sandbox" in services:
        print(f"sandbox: tier {compose.inside('sandbox', READY)['tier']}")
        assert compose.inside("sandbox", REACHES) == [True, False]
        print("sandbox reaches NATS and not Qdrant")
    print(f"{check_keys(compose, services)} containers have the key of their own user and no other")
    run = do_demo(gateway)
    check_trespass(compose)
    print(
        "the server saw no violation in that; the researcher's key opens nothing of others, and nobody comes without"
    )
    made = keys(compose)
    begun = time.monotonic()
    compose("stop", "manager")
    assert compose.exit_code("manager") == 0, "the manager did not drain"
    print(f"manager drained and ended by itself within {time.monotonic() - begun:.1f} s")
    compose("down", "--timeout", "40")
    compose(*up)
    assert keys(compose) == made, "keys changed"
    assert "Violation" not in compose("logs", "nats")
    kept = httpx2.get(f"{gateway}/v1/runs/{run}", timeout=30).json()
    assert kept["state"] == "success", kept
    print("down and up again: the keys are the same, and the run is still there")


def keys(compose: Compose) -> str:
    """What the server knows its users by."""
    return compose("exec", "-T", "nats", "cat", "/etc/nats/auth/auth.conf")


def do_demo(gateway: str) -> str:
    """Gives the team its task and checks the answer as `cadre up --run` does; the run's id."""
    team = read_team(ROOT / "teams" / "apollo")
    assert team.demo is not None
    assert team.demo.check is not None
    task = {"agent": team.demo.agent, "task": team.demo.task}
    run: str = httpx2.post(f"{gateway}/v1/runs", json=task, timeout=30).raise_for_status().json()["id"]

    def ended() -> bool:
        return state()["ended_at"] is not None

    def state() -> dict[str, object]:
        found: dict[str, object] = httpx2.get(f"{gateway}/v1/runs/{run}", timeout=30).json()
        return found

    begun = time.monotonic()
    eventually(ended, what=f"run {run} has ended", state=state)
    with tempfile.NamedTemporaryFile("w", suffix=".md") as answer:
        answer.write(str(state()["output"]))
        answer.flush()
        subprocess.run([sys.executable, team.demo.check, answer.name], cwd=team.folder, check=True)
    print(f"the demo task was done in {time.monotonic() - begun:.1f} s, and rightly")
    return run


if __name__ == "__main__":
    main()

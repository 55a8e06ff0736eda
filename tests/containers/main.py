"""`make test-compose`: what docker-compose.yml brings up does its work, and continues after what happens to containers.

The image is built, the demo task done, an agent added, every container killed, the image replaced under runs, all taken
down, and up again with all it had. Needs an engine with Compose (`docker compose version`), or root and what an engine
of the tests is made of (`own_engine`). `--override FILE` lays another compose file over the shipped one, for mirrors;
`--without SERVICE` leaves out a service whose image is not available, with those that need it. `--profile NAME` adds
the services of a profile: with `jaeger` the demo's trace is looked for there, with `full` Prometheus is asked for its
targets and rules. With `--built` the image is there; `--quick` ends after the demo.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx2
import yaml

from cadre.deploy.team_file import read_team
from containers import own_engine
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
TARGETS = """
import json, urllib.request
def ask(path):
    return json.load(urllib.request.urlopen(f"http://prometheus:9090/api/v1/{path}", timeout=5))["data"]
active = [one for one in ask("targets")["activeTargets"] if one["labels"]["job"] == "cadre"]
up = {one["labels"]["service"]: one["health"] for one in active}
rules = {one["name"]: one["health"] for group in ask("rules")["groups"] for one in group["rules"]}
print(json.dumps({"targets": up, "rules": rules}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="make test-compose", description=__doc__)
    parser.add_argument("--override", type=Path, action="append", default=[])
    parser.add_argument("--without", action="append", default=[], metavar="SERVICE")
    parser.add_argument("--profile", action="append", default=[], metavar="NAME")
    parser.add_argument("--built", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    port = free_port()
    environment = {**os.environ, "CADRE_GATEWAY_PORT": str(port), "CADRE_JAEGER_PORT": str(free_port())}
    environment["COMPOSE_PROFILES"] = ",".join(options.profile)
    try:
        print(f"engine {find_engine(environment)}", flush=True)
    except NoEngine as error:
        sys.exit(with_own_engine(str(error)))
    with tempfile.TemporaryDirectory(prefix="cadre-") as folder:
        files = [file.resolve() for file in options.override]
        compose = Compose(files, environment)
        services = [name for name in compose.services() if name not in options.without]
        more = Compose([*files, with_poet(Path(folder))], environment)
        if not options.built:
            compose("build", "--build-arg", f"AUTH={users_of_image()}", "auth")
        try:
            jaeger = f"http://127.0.0.1:{environment['CADRE_JAEGER_PORT']}" if "jaeger" in services else ""
            gateway = f"http://127.0.0.1:{port}"
            run = start(compose, services, gateway, jaeger)
            if not options.quick:
                attempt(compose, services, gateway, more, run)
        finally:
            more("down", "--volumes", "--remove-orphans", "--timeout", "40")
    left_out = f"; not tried: {', '.join(options.without)}" if options.without else ""
    print(f"test-compose: all is well{left_out}")


def with_own_engine(why: str) -> int:
    """Return the exit code of the same tests on an engine of their own."""
    print(f"test-compose: {why}: starting an engine of the tests", file=sys.stderr)
    argv = ["nsenter", f"--net=/run/netns/{own_engine.NAMESPACE}", sys.executable, "-m", "containers.main"]
    argv += ["--built", "--without", "qdrant", "--override", str(own_engine.override())]
    environment = {**os.environ, **own_engine.settings()}
    try:
        with own_engine.own_engine([f"AUTH={users_of_image()}"]) as tries:
            codes = [subprocess.run([*argv, *one], env=environment, check=False).returncode for one in tries]
            return max(codes)
    except NoEngine as error:
        print(f"test-compose: not tried: {why}; {error}", file=sys.stderr)
        return 1


def users_of_image() -> str:
    """Return the users whose folders the image has, with that of the agent that is added."""
    shipped = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["x-cadre"]["build"]["args"]["AUTH"]
    return f"{shipped} agent-poet"


def with_poet(folder: Path) -> Path:
    """Return a compose file that adds an agent, and a model for it, as docs/security.md says."""
    spec = {"description": "Writes verse.", "kind": "tool_calling", "limits": {"max_steps": 3}}
    agent = {"apiVersion": "cadre.dev/v1", "kind": "Agent", "metadata": {"name": "poet"}, "spec": spec}
    (folder / "poet.yaml").write_text(yaml.safe_dump(agent))
    shipped = str(ROOT / "docker-compose.yml")
    one_more = ["--agent", "poet"]
    services = {
        "auth": {
            "command": [
                "auth",
                "init",
                "--team",
                "/teams/apollo",
                "--memory",
                *one_more,
                "--apart",
                "-o",
                "/auth",
            ],
            "volumes": ["key-agent-poet:/auth/agent-poet"],
        },
        "provision": {"command": ["provision", "/teams/apollo", "--service", "memory", *one_more]},
        "poets-model": {
            "extends": {"file": shipped, "service": "scripted-model"},
            "command": ["scripted-model", "--mode", "auto", "--host", "0.0.0.0", "--port", "8090"],
        },
        "poet": {
            "extends": {"file": shipped, "service": "checker"},
            "command": ["agent", "/poet.yaml"],
            "environment": {"CADRE_MODEL_URL": "http://poets-model:8090/v1"},
            "volumes": ["key-agent-poet:/run/cadre:ro", f"{folder}/poet.yaml:/poet.yaml:ro"],
        },
    }
    file = folder / "poet-compose.yml"
    file.write_text(yaml.safe_dump({"services": services, "volumes": {"key-agent-poet": {}}}))
    folder.chmod(0o755)
    return file


def add_agent(more: Compose, up: tuple[str, ...], gateway: str) -> None:
    begun = time.monotonic()
    before = more("ps", "--quiet", "manager")
    more("run", "--rm", "auth")
    more("kill", "--signal", "HUP", "nats")
    more("run", "--rm", "provision")
    more("up", "--detach", "--no-deps", "--wait", "poets-model", "poet")
    run = begin(gateway, "poet", "Write a line.")
    ended(gateway, run)
    assert more("ps", "--quiet", "manager") == before, "another service was started anew"
    print(f"an agent was added by one more container, and did a task, within {time.monotonic() - begun:.1f} s")


def kill_all(more: Compose, up: tuple[str, ...], gateway: str, run: str) -> None:
    begun = time.monotonic()
    more("kill")
    more(*up)
    assert state_of(gateway, run)["state"] == "success"
    do_demo(gateway)
    print(f"every container was killed: back with its runs, and at work, within {time.monotonic() - begun:.1f} s")


def upgrade(more: Compose, up: tuple[str, ...], gateway: str) -> None:
    begun = time.monotonic()
    old = more("images", "--quiet", "manager")
    more.docker("build", "--tag", "cadre", "-", given="FROM cadre\nLABEL of.the.tests=next\n")
    team = read_team(ROOT / "teams" / "apollo")
    assert team.demo is not None
    runs = [begin(gateway, team.demo.agent, team.demo.task) for _ in range(10)]
    more(*up)
    assert more("images", "--quiet", "manager") != old, "the services have the image of before"
    for run in runs:
        check_answer(ended(gateway, run))
    print(f"the image was replaced under {len(runs)} runs, all of them right, within {time.monotonic() - begun:.1f} s")


def check_trace(jaeger: str, gateway: str, run: str) -> None:
    """Find the run's trace in Jaeger: all its spans hang on one root."""
    trace, found = state_of(gateway, run)["trace"], list[dict[str, Any]]()

    def is_whole() -> bool:
        try:
            answer = httpx2.get(f"{jaeger}/api/traces/{trace}", timeout=30)
        except httpx2.TransportError:
            return False
        if not answer.is_success:
            return False
        [one] = answer.json()["data"]
        found[:] = one["spans"]
        ids = {span["spanID"] for span in found}
        parents = [[of["spanID"] for of in span["references"]] for span in found]
        return parents.count([]) == 1 and all(ids >= {*many} for many in parents)

    eventually(is_whole, what="the trace is in Jaeger, with one root and no orphan", state=lambda: found)
    print(f"Jaeger has the trace: {len(found)} spans, one root, no orphan")


def check_prometheus(compose: Compose, services: list[str]) -> None:
    """Find every service that runs among Prometheus' targets, and read by it; and the alerts among its rules."""
    file = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())
    alerts = {one["alert"] for group in file["groups"] for one in group["rules"] if "alert" in one}
    config = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    wanted = {*config["scrape_configs"][0]["dns_sd_configs"][0]["names"]} & {*services}
    found: dict[str, Any] = {}

    def are_read() -> bool:
        found.update(compose.inside("gateway", TARGETS))
        read = {name for name, health in found["targets"].items() if health == "up"}
        # A rule's health is "unknown" until it is evaluated for the first time.
        return read >= wanted and all(found["rules"].get(one) == "ok" for one in alerts)

    eventually(are_read, what="Prometheus reads every service and evaluates every alert", state=lambda: found)
    print(f"Prometheus reads {len(wanted)} services and evaluates {len(alerts)} alerts")


def ups(services: list[str]) -> tuple[str, ...]:
    return ("up", "--detach", "--wait", "--wait-timeout", "300", *services)


def start(compose: Compose, services: list[str], gateway: str, jaeger: str) -> str:
    """Bring all up, look at it, and do the demo; return its run's id."""
    begun = time.monotonic()
    compose(*ups(services))
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
    if jaeger:
        check_trace(jaeger, gateway, run)
    if "prometheus" in services:
        check_prometheus(compose, services)
    return run


def attempt(compose: Compose, services: list[str], gateway: str, more: Compose, run: str) -> None:
    check_trespass(compose)
    print("the server saw no violation in that; the researcher's key opens nothing of others, and nobody comes without")
    up = ups(services)
    add_agent(more, up, gateway)
    up = (*up, "poets-model", "poet")
    kill_all(more, up, gateway, run)
    upgrade(more, up, gateway)
    compose = more
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
    """Return what the server knows its users by."""
    return compose("exec", "-T", "nats", "cat", "/etc/nats/auth/auth.conf")


def do_demo(gateway: str) -> str:
    """Gives the team its task and checks the answer as `cadre up --run` does; the run's id."""
    team = read_team(ROOT / "teams" / "apollo")
    assert team.demo is not None
    begun = time.monotonic()
    run = begin(gateway, team.demo.agent, team.demo.task)
    check_answer(ended(gateway, run))
    print(f"the demo task was done in {time.monotonic() - begun:.1f} s, and rightly")
    return run


def begin(gateway: str, agent: str, task: str) -> str:
    """Begin a run; return its id."""
    made = httpx2.post(f"{gateway}/v1/runs", json={"agent": agent, "task": task}, timeout=30)
    run: str = made.raise_for_status().json()["id"]
    return run


def state_of(gateway: str, run: str) -> dict[str, Any]:
    """Return what the gateway says of a run; nothing while it does not answer."""
    try:
        answer = httpx2.get(f"{gateway}/v1/runs/{run}", timeout=30)
    except httpx2.TransportError:
        return {}
    found: dict[str, Any] = answer.json() if answer.is_success else {}
    return found


def ended(gateway: str, run: str) -> str:
    """Wait until a run has succeeded; return its answer."""
    eventually(
        lambda: state_of(gateway, run).get("ended_at") is not None,
        what=f"run {run} has ended",
        state=lambda: state_of(gateway, run),
    )
    found = state_of(gateway, run)
    assert found["state"] == "success", found
    return str(found["output"])


def check_answer(output: str) -> None:
    """Hold an answer against what the team's demo is to say."""
    team = read_team(ROOT / "teams" / "apollo")
    assert team.demo is not None
    assert team.demo.check is not None
    with tempfile.NamedTemporaryFile("w", suffix=".md") as answer:
        answer.write(output)
        answer.flush()
        check = [sys.executable, team.demo.check, answer.name]
        subprocess.run(check, cwd=team.folder, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()

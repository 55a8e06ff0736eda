"""The compose file and the image name what exists, and agree with the services about time."""

import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import yaml

from cadre.cli.main import SERVICE_GROUP
from cadre.deploy.team_file import read_team
from cadre.spec.agent_file import read_agent
from harness.nats_server import nats_binary

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
ALL_OURS = {name: service for name, service in COMPOSE["services"].items() if service["image"] == "cadre"}
ONCE = ("auth", "provision")
"""They do what they are for and end."""
OURS = {name: service for name, service in ALL_OURS.items() if name not in ONCE}
CLOSING = 10
"""Seconds that a service may take beyond its drain time."""


def in_checkout(path: str) -> Path:
    """Return what a path in a container stands for: `./teams` is mounted at `/teams`."""
    assert path.startswith("/teams/")
    return ROOT / path.removeprefix("/")


@pytest.mark.parametrize("name", OURS)
def test_a_service_runs_a_command_that_exists_on_files_that_exist(name: str) -> None:
    verb, *arguments = OURS[name]["command"]
    assert verb in {entry.name for entry in entry_points(group=SERVICE_GROUP)}
    for path in (argument for argument in arguments if argument.startswith("/")):
        assert in_checkout(path).is_file(), path
        assert "./teams:/teams:ro" in OURS[name]["volumes"]
    if verb == "agent":
        assert read_agent(in_checkout(arguments[0])).name == name


def test_the_whole_shipped_team_is_there() -> None:
    team = read_team(ROOT / "teams" / "apollo")
    commands = [service["command"] for service in OURS.values()]
    agents = {in_checkout(c[1]).name for c in commands if c[0] == "agent"}
    tools = {str(in_checkout(c[1])) for c in commands if c[0] == "tools"}
    assert agents == {file.name for file in team.agents.values()}
    assert tools == set(team.tools)


def test_the_compose_file_is_one() -> None:
    """As its published schema has it."""
    subprocess.run(
        [
            sys.executable,
            "-m",
            "check_jsonschema",
            "--builtin-schema",
            "vendor.compose-spec",
            "docker-compose.yml",
        ],
        cwd=ROOT,
        check=True,
    )


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_what_a_service_names_is_there(name: str) -> None:
    service = COMPOSE["services"][name]
    assert set(service.get("depends_on", {})) <= set(COMPOSE["services"])
    for other, condition in service.get("depends_on", {}).items():
        if other in ONCE:
            assert condition == {"condition": "service_completed_successfully"}
            assert "healthcheck" not in COMPOSE["services"][other]
        else:
            assert condition == {"condition": "service_healthy"}
            assert "healthcheck" in COMPOSE["services"][other]
    assert set(service.get("networks", ["default"])) <= set(COMPOSE["networks"])
    for mount in service.get("volumes", []):
        source, target, *_ = mount.split(":")
        assert target.startswith("/")
        assert (ROOT / source).exists() if source.startswith(".") else source in COMPOSE["volumes"], mount


def test_all_parts_of_cadre_are_there() -> None:
    verbs = {service["command"][0] for service in OURS.values()}
    assert {"gateway", "agent", "tools", "sandbox", "memory"} <= verbs
    assert OURS["memory"]["environment"]["QDRANT_URL"] == "http://qdrant:6333"


def test_the_sandbox_is_ordinary_bounded_and_alone_with_the_bus() -> None:
    sandbox = OURS["sandbox"]
    assert sandbox["user"] == "10001:10001"
    assert "no-new-privileges:true" in sandbox["security_opt"]
    assert not [option for option in sandbox["security_opt"] if "seccomp" in option]
    assert sandbox["networks"] == ["bus"]
    assert COMPOSE["networks"]["bus"]["internal"] is True
    assert not [name for name in sandbox["environment"] if "KEY" in name]
    assert {"mem_limit", "pids_limit", "cpus"} <= set(sandbox)


def test_only_the_memory_service_reaches_qdrant() -> None:
    there = {name for name, service in COMPOSE["services"].items() if "vectors" in service.get("networks", [])}
    assert there == {"memory", "qdrant"}


@pytest.mark.parametrize("name", OURS)
def test_a_service_may_drain_before_it_is_killed(name: str) -> None:
    grace = int(OURS[name]["stop_grace_period"].removesuffix("s"))
    drain = int(COMPOSE["x-environment"]["CADRE_DRAIN_SECONDS"])
    assert grace >= drain + CLOSING


@pytest.mark.parametrize("name", ALL_OURS)
def test_a_service_is_confined_and_asked_whether_it_is_ready(name: str) -> None:
    service = ALL_OURS[name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service.get("user", "10001:10001") == "10001:10001"
    assert name in ONCE or "/readyz" in service["healthcheck"]["test"][-1]


def test_nothing_is_published_beyond_this_machine() -> None:
    published = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_the_image_copies_what_exists_and_what_its_context_lets_through() -> None:
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    copied = {
        source for line in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE) for source in line.split()
    }
    allowed = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
    assert copied
    for source in copied:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in allowed


def test_the_image_is_made_as_hadolint_would_have_it() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    found = subprocess.run([str(hadolint), "deploy/Dockerfile"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout


def test_what_is_installed_in_the_image_has_a_hash() -> None:
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    installs = re.findall(r"pip install ([^&\n]+)", text)
    assert len(installs) == 4
    assert all("--require-hashes" in line or "--no-deps" in line for line in installs), installs


def test_the_image_runs_as_nobody_in_particular() -> None:
    lines = (ROOT / "deploy" / "Dockerfile").read_text().splitlines()
    assert lines.index("USER 10001") < lines.index('ENTRYPOINT ["cadre"]')


def test_nats_loses_nothing_that_it_acknowledged_unless_told_otherwise() -> None:
    assert COMPOSE["services"]["nats"]["environment"]["CADRE_NATS_SYNC"] == "${CADRE_NATS_SYNC:-always}"


@pytest.mark.parametrize(
    ("name", "sync", "written"),
    [
        *(("nats.conf", sync, "$CADRE_NATS_SYNC") for sync in ("always", "10s", "500ms")),
        ("cluster.conf", "", "100ms"),
    ],
)
def test_the_servers_file_is_one_that_it_reads(name: str, sync: str, written: str, tmp_path: Path) -> None:
    """One server syncs before it acknowledges, unless its environment says otherwise; three sync at an interval."""
    file = tmp_path / name
    file.write_text((ROOT / "deploy" / "nats" / name).read_text())
    (tmp_path / "auth").mkdir()
    (tmp_path / "auth" / "auth.conf").write_text("authorization { users: [] }\n")
    assert re.findall(r"^\s*sync_interval: (\S+)$", file.read_text(), re.MULTILINE) == [written]
    subprocess.run(
        [nats_binary(), "-t", "-c", file],
        env={"CADRE_NATS_SYNC": sync, "CADRE_NATS_NAME": "nats-1", "CADRE_NATS_STORE": "/data"},
        check=True,
        capture_output=True,
    )

"""The compose file and the image name what exists, and agree with the services about time."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cadre.agent_file import read_agent
from cadre.cli.main import SERVICES
from cadre.cli.team import read_team
from harness.nats_server import nats_binary

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
OURS = {name: service for name, service in COMPOSE["services"].items() if name != "nats"}
CLOSING = 10
"""Seconds that a service may take beyond its drain time."""


def in_checkout(path: str) -> Path:
    """What a path in a container stands for: `./teams` is mounted at `/teams`."""
    assert path.startswith("/teams/")
    return ROOT / path.removeprefix("/")


@pytest.mark.parametrize("name", OURS)
def test_a_service_runs_a_command_that_exists_on_files_that_exist(name: str) -> None:
    verb, *arguments = OURS[name]["command"]
    assert verb in SERVICES
    assert "./teams:/teams:ro" in OURS[name]["volumes"]
    for path in (argument for argument in arguments if argument.startswith("/")):
        assert in_checkout(path).is_file(), path
    if verb == "agent":
        assert read_agent(in_checkout(arguments[0])).name == name


def test_the_whole_shipped_team_is_there() -> None:
    team = read_team(ROOT / "teams" / "apollo")
    commands = [service["command"] for service in OURS.values()]
    agents = {in_checkout(c[1]).name for c in commands if c[0] == "agent"}
    tools = {str(in_checkout(c[1])) for c in commands if c[0] == "tools"}
    assert agents == {file.name for file in team.agents.values()}
    assert tools == set(team.tools)


@pytest.mark.parametrize("name", OURS)
def test_a_service_may_drain_before_it_is_killed(name: str) -> None:
    grace = int(OURS[name]["stop_grace_period"].removesuffix("s"))
    drain = int(COMPOSE["x-environment"]["CADRE_DRAIN_SECONDS"])
    assert grace >= drain + CLOSING


@pytest.mark.parametrize("name", OURS)
def test_a_service_is_confined_and_asked_whether_it_is_ready(name: str) -> None:
    service = OURS[name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert "/readyz" in service["healthcheck"]["test"][-1]


def test_nothing_is_published_beyond_this_machine() -> None:
    published = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_the_image_copies_what_exists_and_what_its_context_lets_through() -> None:
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    copied = {
        source
        for line in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
        for source in line.split()
    }
    allowed = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
    assert copied
    for source in copied:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in allowed


def test_the_image_runs_as_nobody_in_particular() -> None:
    lines = (ROOT / "deploy" / "Dockerfile").read_text().splitlines()
    assert lines.index("USER 10001") < lines.index('ENTRYPOINT ["cadre"]')


def test_nats_loses_nothing_that_it_acknowledged_unless_told_otherwise() -> None:
    assert COMPOSE["services"]["nats"]["environment"]["CADRE_NATS_SYNC"] == "${CADRE_NATS_SYNC:-always}"


@pytest.mark.parametrize("sync", ["always", "10s", "500ms"])
@pytest.mark.parametrize("name", ["nats.conf", "cluster.conf"])
def test_the_servers_file_is_one_that_it_reads(name: str, sync: str) -> None:
    file = ROOT / "deploy" / "nats" / name
    assert re.search(r"^\s*sync_interval: \$CADRE_NATS_SYNC$", file.read_text(), re.MULTILINE)
    subprocess.run(
        [nats_binary(), "-t", "-c", file],
        env={"CADRE_NATS_SYNC": sync, "CADRE_NATS_NAME": "nats-1", "CADRE_NATS_STORE": "/data"},
        check=True,
        capture_output=True,
    )

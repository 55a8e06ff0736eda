"""In the compose file every service is a user of the bus: it has the key that is its own, and no one has two."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cadre.adapters.nats.connection.keys import read_key
from cadre.deploy.nats_files import SERVER_FILE, server_file
from cadre.deploy.team_components import roles_of
from cadre.deploy.team_file import read_team
from cadre.protocol.topology import Topology
from harness.nats_server import nats_binary

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
ON_THE_BUS = [
    name for name, service in SERVICES.items() if service["image"] == "cadre" and name not in ("auth", "scripted-model")
]
COMPLETED = {"condition": "service_completed_successfully"}


def own_user(name: str) -> str:
    verb, *arguments = SERVICES[name]["command"]
    if verb == "provision":
        return "operator"
    if verb == "agent":
        return f"agent-{name}"
    if verb == "tools":
        return f"tools-{Path(arguments[0]).stem}"
    return "sandbox-default" if verb == "sandbox" else str(verb)


def mounts(name: str) -> dict[str, tuple[str, str]]:
    """Return what stands there and how, by the path in the container."""
    found = (mount.split(":") for mount in SERVICES[name].get("volumes", []))
    return {target: (source, "".join(mode)) for source, target, *mode in found}


@pytest.mark.parametrize("name", ON_THE_BUS)
def test_a_service_has_its_own_key_and_no_other(name: str) -> None:
    key = Path(SERVICES[name]["environment"]["CADRE_NATS_CREDENTIALS"])
    assert mounts(name)[str(key.parent)] == (f"key-{own_user(name)}", "ro")
    others = [source for source, _ in mounts(name).values() if source.startswith(("key-", "nats-users"))]
    assert others == [f"key-{own_user(name)}"]


@pytest.mark.parametrize("name", SERVICES)
def test_nobody_else_has_one(name: str) -> None:
    sources = {source for source, _ in mounts(name).values()}
    if name not in (*ON_THE_BUS, "auth"):
        assert not [source for source in sources if source.startswith("key-")]
    assert ("nats-users" in sources) is (name in ("auth", "nats"))


def test_each_starts_when_the_bus_is_ready_for_it() -> None:
    for name in ON_THE_BUS:
        before = SERVICES[name]["depends_on"]
        if name == "provision":
            assert before == {"nats": {"condition": "service_healthy"}}
        else:
            assert before["provision"] == COMPLETED
    assert SERVICES["nats"]["depends_on"] == {"auth": COMPLETED}
    assert "depends_on" not in SERVICES["auth"]
    assert SERVICES["auth"]["network_mode"] == "none"
    for once in ("auth", "provision"):
        assert "restart" not in SERVICES[once], "it would be started for ever"


def test_the_folders_of_the_keys_are_there_for_their_volumes_to_belong_to_the_images_user() -> None:
    volumes = {path.removeprefix("/auth/"): source for path, (source, _) in mounts("auth").items()}
    assert volumes.pop("/teams") == "./teams"
    assert volumes.pop("server") == "nats-users"
    assert volumes == {user: f"key-{user}" for user in volumes}
    assert {own_user(name) for name in ON_THE_BUS} == set(volumes)
    assert SERVICES["auth"]["build"]["args"]["AUTH"].split() == ["server", *volumes]


@pytest.fixture
def auth(tmp_path: Path) -> Path:
    """Return what `auth` leaves when it has run twice, in a root that it may write only where a volume is mounted."""
    folder = tmp_path / "auth"
    for path in mounts("auth"):
        if path.startswith("/auth/"):
            (tmp_path / path[1:]).mkdir(parents=True)
    arguments = [{"/auth": str(folder), "/teams/apollo": str(ROOT / "teams/apollo")}.get(a, a) for a in command()]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CADRE_")}
    for first in (True, False):
        done = subprocess.run(
            [sys.executable, "-m", "cadre.cli.main", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert ("new  operator" in done.stderr) is first
        assert ("kept operator" in done.stderr) is not first
    return folder


def command() -> list[str]:
    found: list[str] = SERVICES["auth"]["command"]
    return found


def test_the_keys_are_those_that_are_made_and_each_lies_apart(auth: Path) -> None:
    for path, (source, _) in mounts("auth").items():
        folder = auth.parent / path[1:]
        if source.startswith("key-"):
            [file] = folder.iterdir()
            assert file.name == Path(COMPOSE["x-environment"]["CADRE_NATS_CREDENTIALS"]).name
            assert read_key(file).user == source.removeprefix("key-")
            assert (file.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o600, 0o700)
    made = {f"/auth/{entry.name}" for entry in auth.iterdir()}
    assert made == {path for path in mounts("auth") if path != "/teams"}, "a key without a volume"
    for file in (auth / "server").iterdir():
        assert "\nSU" not in file.read_text()
        assert file.stat().st_mode & 0o777 == 0o644


def test_the_servers_file_takes_the_users_in(auth: Path, tmp_path: Path) -> None:
    [(target, _)] = [(t, s) for t, s in mounts("nats").items() if s[0] == "nats-users"]
    here = tmp_path / "etc/nats"
    (tmp_path / target[1:]).mkdir(parents=True)
    (here / "nats.conf").write_text((ROOT / "deploy/nats/nats.conf").read_text())
    (tmp_path / target[1:] / SERVER_FILE).write_text((auth / "server" / SERVER_FILE).read_text())
    check = [nats_binary(), "-t", "-c", str(here / "nats.conf")]
    subprocess.run(check, env={"CADRE_NATS_SYNC": "always"}, check=True, capture_output=True)
    (tmp_path / target[1:] / SERVER_FILE).unlink()
    without = subprocess.run(check, env={"CADRE_NATS_SYNC": "always"}, check=False, capture_output=True)
    assert without.returncode != 0, "a server that nobody told of users would let everybody in"


def test_a_user_without_a_key_is_a_mistake_of_ours() -> None:
    roles = roles_of(read_team(ROOT / "teams" / "apollo"))
    with pytest.raises(KeyError):
        server_file(SERVER_FILE, roles, {}, Topology(1))

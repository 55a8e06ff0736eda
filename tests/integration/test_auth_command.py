"""`cadre auth init` and what it leaves: keys that stay, keys that change, and a server that takes its word."""

import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cadre.adapters.nats.connection.keys import read_key
from cadre.deploy.nats_files import key_file, update_users
from cadre.local.nats_server import StackUsers
from cadre.protocol.nats_users import team_roles
from cadre.protocol.topology import Topology
from harness.command import Commands, only_line
from harness.nats_server import NatsServer, nats_binary
from harness.patience import patience
from harness.texts import holds

TEAM = Path(__file__).parents[2] / "teams" / "apollo"


@pytest.fixture
def cadre(tmp_path: Path) -> Commands:
    return Commands(tmp_path, {k: v for k, v in os.environ.items() if not k.startswith("CADRE_")})


def keys(folder: Path) -> dict[str, str]:
    return {file.stem: read_key(file).seed for file in folder.glob("*.nk")}


def test_it_makes_a_user_for_every_service_of_a_team_and_keeps_them(cadre: Commands) -> None:
    folder = cadre.folder / "auth"
    done = cadre("auth", "init", "--team", TEAM, "-o", folder)
    assert done.returncode == 0, done.stderr
    made = keys(folder)
    assert {"operator", "gateway", "agent-manager", "tools-documents", "sandbox-default", "tracer"} <= {*made}
    assert len({*made.values()}) == len(made)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.glob("*.nk")} == {0o600}
    text = (folder / "auth.conf").read_text()
    assert not any(seed in text for seed in made.values()), "the server needs no secret"

    again = cadre("auth", "init", "--agent", "poet", "-o", folder)
    assert again.returncode == 0, again.stderr
    assert "new  agent-poet" in again.stderr
    assert {user: seed for user, seed in keys(folder).items() if user != "agent-poet"} == made
    assert read_key(folder / "agent-poet.nk").public in (folder / "auth.conf").read_text()

    rotated = cadre("auth", "init", "-o", folder, "--rotate", "--user", "gateway")
    assert rotated.returncode == 0, rotated.stderr
    changed = keys(folder)
    assert [user for user in made if changed[user] != made[user]] == ["gateway"]

    gone = cadre("auth", "init", "-o", folder, "--remove", "--user", "agent-poet")
    assert gone.returncode == 0, gone.stderr
    assert "agent-poet" not in keys(folder)
    assert "agent-poet" not in (folder / "auth.conf").read_text()


def test_keys_that_lie_apart_can_each_be_handed_to_one(cadre: Commands, tmp_path: Path) -> None:
    """All that a folder has is one key; they stay, change and go as others do."""
    folder = tmp_path / "auth"
    apart = ["auth", "init", "--apart", "-o", folder]
    assert cadre(*apart, "--agent", "boss", "--agent", "poet").returncode == 0

    def found() -> dict[str, str]:
        return {file.parent.name: read_key(file).seed for file in folder.glob("*/nats.nk")}

    made = found()
    assert {"operator", "gateway", "tracer", "agent-boss", "agent-poet"} == {*made}
    assert all(read_key(folder / user / "nats.nk").user == user for user in made)
    assert {stat.S_IMODE((folder / user).stat().st_mode) for user in made} == {0o700}
    assert not [path for path in folder.iterdir() if path.is_file()]
    assert cadre(*apart, "--rotate", "--user", "agent-boss").returncode == 0
    assert [user for user in made if found()[user] != made[user]] == ["agent-boss"]
    assert cadre(*apart, "--remove", "--user", "agent-poet").returncode == 0
    assert {*found()} == {*made} - {"agent-poet"}
    told = (folder / "server" / "auth.conf").read_text()
    assert all(read_key(folder / user / "nats.nk").public in told for user in found())
    assert "agent-poet" not in told
    (folder / "agent-late").write_text("in the way")
    assert f"{folder / 'agent-late'}: cannot be written" in only_line(cadre(*apart, "--agent", "late"), 1)


def test_a_server_accepts_what_it_writes(cadre: Commands, tmp_path: Path) -> None:
    assert cadre("auth", "init", "--team", TEAM, "-o", tmp_path / "auth").returncode == 0
    server = NatsServer(tmp_path, more='include "auth/auth.conf"\n')
    checked = subprocess.run(
        [nats_binary(), "-t", "-c", str(server._config)],
        capture_output=True,
        text=True,
        timeout=patience(),
        check=False,
    )
    assert checked.returncode == 0, checked.stderr


def test_the_keys_as_secrets_of_kubernetes(cadre: Commands) -> None:
    folder = cadre.folder / "auth"
    done = cadre("auth", "init", "--agent", "boss", "-o", folder, "--secrets", "--namespace", "there")
    secrets: list[dict[str, Any]] = list(yaml.safe_load_all(done.stdout))
    names = {one["metadata"]["name"] for one in secrets}
    assert {
        "cadre-nats-provision",
        "cadre-nats-agent-boss",
        "cadre-nats-gateway",
        "cadre-nats-server",
    } <= names
    server = next(one for one in secrets if one["metadata"]["name"] == "cadre-nats-server")
    assert server["stringData"] == {"auth.conf": (folder / "auth.conf").read_text()}
    boss = next(one for one in secrets if one["metadata"]["name"] == "cadre-nats-agent-boss")
    assert boss["metadata"]["namespace"] == "there"
    assert boss["stringData"]["nats.nk"] == (folder / "agent-boss.nk").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--team"),
        (["--tools", "desk"], "write NAME=TOOL,TOOL"),
        (["--agent", "a.b"], "letters, digits"),
        (["--agent", "a", "--rotate", "--user", "nobody"], "nobody"),
        (["--agent", "a", "--user", "agent-a"], "--user goes with"),
        (["--remove"], "--remove needs --user"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(cadre: Commands, arguments: list[str], said: str) -> None:
    done = cadre("auth", "init", "-o", cadre.folder / "auth", *arguments)
    assert said in only_line(done, done.returncode)
    assert done.returncode in (1, 2)


def test_a_command_without_the_right_key_ends_with_one_line(cadre: Commands, tmp_path: Path) -> None:
    assert cadre("auth", "init", "--agent", "boss", "-o", tmp_path / "auth").returncode == 0
    with NatsServer(tmp_path, more='include "auth/auth.conf"\n') as server:
        nobody = cadre("provision", "--agent", "boss", CADRE_NATS_URL=server.url)
        assert holds(only_line(nobody, 2), "CADRE_NATS_CREDENTIALS", "`cadre auth init`")
        agent = {"CADRE_NATS_URL": server.url, "CADRE_NATS_CREDENTIALS": str(tmp_path / "auth/agent-boss.nk")}
        forbidden = cadre("provision", "--agent", "boss", **agent)
        assert holds(only_line(forbidden, 2), "agent-boss", "CADRE_NATS_CREDENTIALS")
        early = cadre("tracer", CADRE_SETUP_SECONDS="0", OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1", **agent)
        assert early.returncode == 2
        assert "`cadre provision`" in early.stderr.splitlines()[-1]


def test_the_whole_team_works_with_a_user_for_each_service(cadre: Commands, tmp_path: Path) -> None:
    """Manager, members, tools, sandbox, gateway: processes that have their own rights and need no more."""
    data = tmp_path / "data"
    running = cadre.start("up", TEAM, "--run", "--secure", "--data", data, "--timeout", "150")
    out, err = running.communicate(timeout=patience())
    assert running.returncode == 0, (out, err)
    assert "demo.check passed" in out + err
    log = (data / "logs" / "nats.log").read_text()
    assert "Violation" not in log
    assert 'include "auth/up.conf"' in (data / "nats.conf").read_text()
    assert [*data.rglob("*.nk")] == [], "a file with a key is one that tools can read"
    assert "# agent-manager" in (data / "auth" / "up.conf").read_text()


def test_a_start_makes_new_keys_and_keeps_those_of_users_that_were_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "auth"
    update_users(folder, team_roles(["poet"], [], [], memory=False), Topology(4))
    poet = read_key(key_file(folder, "agent-poet")).public
    (operator,) = {read_key(key_file(folder, "operator")).public}
    users = StackUsers(tmp_path)
    users.create_keys(None)
    text = users.server_file.read_text()
    assert poet in text
    assert operator not in text
    assert [file.name for file in folder.glob("*.nk")] == ["agent-poet.nk"]
    first = read_key(Path(users.key("operator").path)).public
    assert first in text
    update_users(tmp_path / "mine", team_roles([], [], [], memory=False), Topology(4))
    mine = key_file(tmp_path / "mine", "operator")
    monkeypatch.setenv("CADRE_NATS_CREDENTIALS", str(mine))
    users.create_keys(None)
    text = users.server_file.read_text()
    assert poet in text
    assert first not in text
    assert read_key(mine).public in text

"""Anything that is wrong is reported in one clear line, with the documented exit code or status; nothing is lost."""

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from cadre.prompting.prompt_file import locate
from harness.command import Commands, only_line
from harness.nats_server import NatsServer, free_port
from harness.patience import eventually
from harness.stack import Gateway, Stack
from harness.texts import holds

TEAM = Path(__file__).parent / "features"

GOOD = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: good}
spec: {description: Good.}
"""


@pytest.fixture
def alone(tmp_path: Path) -> Commands:
    """Commands on a machine where nothing runs."""
    quiet = {name: value for name, value in os.environ.items() if not name.startswith("CADRE_")}
    nowhere = f"127.0.0.1:{free_port()}"
    return Commands(
        tmp_path, {**quiet, "CADRE_NATS_URL": f"nats://{nowhere}", "CADRE_GATEWAY_URL": f"http://{nowhere}"}
    )


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


# --- files


@pytest.mark.parametrize(
    ("command", "place"),
    [
        (["agent", "bad.yaml"], "bad.yaml: unknown key 'instrutions' in spec; known keys: description"),
        (["agent", "own.yaml"], "prompts.yaml: "),
        (["agent", "bytes.yaml"], "bytes.yaml: is not UTF-8"),
        (["agent", "none.yaml"], "none.yaml: cannot be read"),
        (["agent"], "'FILE...'"),
        (["tools", "bad.py"], "bad.py:3: tool f: parameter 'x'"),
        (["up"], "bad.yaml: unknown key 'instrutions' in spec; "),
    ],
)
def test_a_wrong_file_is_one_line(alone: Commands, command: list[str], place: str) -> None:
    head = "apiVersion: cadre.dev/v1\nkind: Team\nmetadata: {name: t}\n"
    (alone.folder / "bad.yaml").write_text(GOOD.replace("Good.", "Good., instrutions: x"))
    (alone.folder / "own.yaml").write_text(GOOD.replace("Good.", "Good., prompts: prompts.yaml"))
    (alone.folder / "prompts.yaml").write_text(locate("tool_calling").read_text().replace("remaining_steps", "x"))
    (alone.folder / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    (alone.folder / "bad.py").write_text("import cadre\n\n@cadre.tool\ndef f(x):\n    '''Does.'''\n")
    (alone.folder / "team.yaml").write_text(f"{head}spec: {{agents: [bad.yaml]}}\n")
    assert place in only_line(alone(*command), 2)


def test_a_team_whose_tool_cannot_be_loaded_ends_what_was_started(alone: Commands) -> None:
    (alone.folder / "good.yaml").write_text(GOOD)
    (alone.folder / "bad.py").write_text("import nothing_of_this_name\n")
    head = "apiVersion: cadre.dev/v1\nkind: Team\nmetadata: {name: t}\n"
    (alone.folder / "team.yaml").write_text(f"{head}spec: {{agents: [good.yaml], tools: [bad.py]}}\n")
    done = alone("up", "--port", 0)
    assert done.returncode == 2, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"cadre: bad: {alone.folder / 'bad.py'}:1: cannot be imported: ModuleNotFoundError")
    assert "Traceback" not in done.stderr
    assert not (alone.folder / ".cadre" / "up.json").exists()


# --- settings, ports, servers


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("CADRE_SHARDS", "abc", "CADRE_SHARDS='abc': must be a whole number"),
        ("CADRE_PORT", "99999", "CADRE_PORT=99999: "),
    ],
)
def test_a_wrong_variable_is_named(alone: Commands, name: str, value: str, said: str) -> None:
    (alone.folder / "good.yaml").write_text(GOOD)
    for command in (["agent", "good.yaml"], ["doctor"]):
        assert only_line(alone(*command, **{name: value}), 2).startswith(f"cadre: {said}")


def test_a_port_in_use(alone: Commands, taken: int) -> None:
    (alone.folder / "good.yaml").write_text(GOOD)
    for service in (["agent", "good.yaml"], ["gateway"]):
        line = only_line(alone(*service, "--port", taken), 2)
        assert f"cannot listen on 127.0.0.1:{taken} (Address already in use); choose another --port" in line
    for option, others in (("--port", []), ("--nats-port", ["--port", 0])):
        line = only_line(alone("up", option, taken, *others), 2)
        assert f"port {taken} for " in line
        assert f"choose another with {option}" in line


def test_no_gateway_and_no_nats(alone: Commands) -> None:
    for command in (["run", "anybody", "anything"], ["ps"], ["runs"], ["show", "abc"], ["cancel", "abc"]):
        line = only_line(alone(*command), 5)
        assert "http://127.0.0.1" in line
        assert line.endswith("start one with `cadre up`, or set CADRE_GATEWAY_URL")
    done = alone("doctor")
    assert (done.returncode, done.stderr) == (1, "")
    failed = [line for line in done.stdout.splitlines() if line.startswith("fail")]
    assert ["NATS" in line for line in failed] == [True, False]
    assert "gateway" in failed[1]


def test_a_nats_server_without_jetstream(tmp_path: Path, alone: Commands) -> None:
    (alone.folder / "good.yaml").write_text(GOOD)
    with NatsServer(tmp_path, jetstream=False) as server:
        done = alone("agent", "good.yaml", CADRE_NATS_URL=server.url, CADRE_LOG_LEVEL="WARNING")
        line = only_line(done, 2)
        assert f"agent good cannot start: {server.url}: JetStream is off" in line
        assert "start nats-server with " in line
        found = alone("doctor", CADRE_NATS_URL=server.url)
    assert found.returncode == 1
    assert "JetStream is off" in found.stdout


def test_services_that_start_before_nats_wait_for_it(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        stack.nats.stop()
        stack.model(TEAM / "script.yaml")
        agent = stack.agent(TEAM / "solo.yaml", start=False)
        gateway = stack.gateway(start=False)
        for service in (agent, gateway.service):
            service.start(wait=False)
        for service in (agent, gateway.service):
            eventually(
                lambda service=service: "still trying" in service.log.read_text(),  # type: ignore[misc]
                what="it says that it waits",
            )
            assert f"{stack.nats.url}" in service.log.read_text()
            assert "Traceback" not in service.log.read_text()
            assert httpx2.get(f"{service.url}/healthz").status_code == 200
            unready = httpx2.get(f"{service.url}/readyz")
            assert (unready.status_code, unready.json()["code"]) == (503, "bus-unavailable")
        refused = gateway.request("POST", "/v1/runs", json={"agent": "solo", "task": "chatty"})
        assert refused.status_code in (404, 503), refused.text
        stack.nats.start()
        for service in (agent, gateway.service):
            service.wait_ready()
        result = gateway.finished(gateway.submit("solo", "chatty"))
        assert (result["state"], result["output"]) == ("success", "recovered")


# --- agents, tools and members that are not there


def test_an_unknown_agent(gateway: Gateway, cadre: Commands) -> None:
    refused = gateway.request("POST", "/v1/runs", json={"agent": "nobody", "task": "x"})
    assert (refused.status_code, refused.json()["code"]) == (404, "unknown-agent")
    assert refused.headers["content-type"] == "application/problem+json"
    line = only_line(cadre("run", "nobody", "x"), 4)
    assert holds(line, "'nobody'", "held, lacking, locked, one")


def test_an_unknown_run(gateway: Gateway, cadre: Commands) -> None:
    for method, path in (("GET", ""), ("GET", "/events"), ("POST", "/cancel")):
        refused = gateway.request(method, f"/v1/runs/f00{path}")
        assert (refused.status_code, refused.json()["code"]) == (404, "unknown-run")
    assert "'f00'" in only_line(cadre("show", "f00"), 4)
    assert holds(only_line(cadre("cancel", "../x"), 2), "'../x'", "@last")


def test_a_run_goes_on_without_those_who_are_not_there(gateway: Gateway, cadre: Commands) -> None:
    done = cadre("run", "lacking", "do what you can")
    assert done.returncode == 0, done.stderr
    told = done.stderr.splitlines()
    [line] = [line for line in told if "no agent absent" in line]
    assert "no agent absent_member: start it with `cadre agent FILE`" in line
    assert "no tool absent_tool: start it with `cadre tools FILE`" in line
    assert "'absent_member'" in done.stdout
    [run] = gateway.request("GET", "/v1/runs", params={"agent": "lacking"}).json()["runs"]
    offer = gateway.wait_for(run["id"], "toolset.changed")["event"]
    assert sorted(offer["missing"]) == ["absent_member", "absent_tool"]
    listed = gateway.request("GET", "/v1/agents").json()["agents"]
    assert {"absent_member", "absent_tool"} == {
        name for agent in listed if agent["name"] == "lacking" for name in agent["missing"]
    }


# --- the model endpoint


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """The one line among those of the run that is the command's own."""
    own = [line for line in done.stderr.splitlines() if line.startswith("cadre: ")]
    assert own == done.stderr.splitlines()[-1:], done.stderr
    assert "Traceback" not in done.stderr
    return own[0]


def test_an_agent_without_a_model_says_so_where_its_readiness_is_asked(tmp_path: Path) -> None:
    file = tmp_path / "poor.yaml"
    file.write_text("apiVersion: cadre.dev/v1\nkind: Agent\nmetadata: {name: poor}\nspec: {description: x}\n")
    with Stack(tmp_path) as stack:
        service = stack.agent(file)
        told = httpx2.get(f"{service.url}/readyz").json()
        assert (told["status"], "CADRE_MODEL_URL" in told["model"]) == ("ready", True)
        (tmp_path / "script.yaml").write_text("rules: []\n")
        stack.model(tmp_path / "script.yaml")
        assert httpx2.get(f"{stack.agent(file, name='rich').url}/readyz").json() == {"status": "ready"}


def test_a_model_endpoint_that_refuses_the_key(gateway: Gateway, cadre: Commands) -> None:
    """Asking again would not help: the run ends at once."""
    done = cadre("run", "locked", "hello")
    assert done.returncode == 1, done.stderr
    assert holds(last_line(done), "401", "CADRE_MODEL_KEY")
    [run] = gateway.request("GET", "/v1/runs", params={"agent": "locked"}).json()["runs"]
    names = [name for name, _ in gateway.events(run["id"])]
    assert (names.count("model.called"), names.count("model.deferred")) == (1, 0)

"""Whatever is wrong is told in one clear line, with the documented exit code or status; nothing is lost."""

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
SPEC_KEYS = "known keys: description, kind, model, instructions, tools, team, limits"
UNKNOWN_KEY = "unknown key 'instrutions' in spec; " + SPEC_KEYS


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
    ("old", "new", "said"),
    [
        ("description: Good.", "description: Good., instrutions: Be kind.", UNKNOWN_KEY),
        ("Good.", "Good., limits: {steps: 3}", "unknown key 'steps' in spec.limits; known keys: max_steps, depth"),
        ("Good.", "Good., limits: {max_steps: many}", "spec.limits.max_steps: Expected `int`, got `str`"),
        ("description: Good.", "instructions: Be kind.", "key 'description' is missing in spec; " + SPEC_KEYS),
        ("description: Good.", "description: ' '", "agent good: write a description"),
        ("kind: Agent", "kind: Agents", "kind: invalid enum value 'Agents'; write Agent"),
        ("name: good", "name: very good", "agent name 'very good': use 1 to 64 of the letters"),
        ("kind: Agent", "kind: Agent\nkind: Team", "not YAML: line 4: the key 'kind' stands there twice"),
        ("{name: good}", "{name: good", "not YAML: line 5: "),
        ("{name: good}", "2026-13-45", "not YAML: month must be in 1..12"),
        (GOOD, "", "Expected `object`, got `null`; known keys"),
    ],
)  # fmt: skip
def test_a_wrong_agent_file(alone: Commands, old: str, new: str, said: str) -> None:
    file = alone.folder / "bad.yaml"
    file.write_text(GOOD.replace(old, new))
    assert only_line(alone("agent", file), 2).startswith(f"cadre: {file}: {said}")


def test_an_agent_file_that_cannot_be_read(alone: Commands) -> None:
    (alone.folder / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    assert only_line(alone("agent", "bytes.yaml"), 2) == "cadre: bytes.yaml: is not UTF-8 text"
    said = only_line(alone("agent", "none.yaml"), 2)
    assert said == "cadre: none.yaml: cannot be read: No such file or directory"
    assert "Missing argument 'FILE...'" in only_line(alone("agent"), 2)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("{{ final_answer }}", "the answer", "managed_agent.report"),
        ("{{ remaining_steps }}", "{{ steps_left }}", "'steps_left'"),
        ("initial_plan:", "first_plan:", "unknown key 'planning.first_plan'; the keys are"),
    ],
)
def test_a_wrong_prompt_file(alone: Commands, old: str, new: str, said: str) -> None:
    shipped = locate("tool_calling").read_text()
    assert old in shipped
    (alone.folder / "own.yaml").write_text(shipped.replace(old, new))
    file = alone.folder / "agent.yaml"
    file.write_text(GOOD.replace("Good.", "Good., prompts: own.yaml"))
    line = only_line(alone("agent", file), 2)
    assert line.startswith(f"cadre: {alone.folder / 'own.yaml'}: ")
    assert said in line


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import cadre\n\n@cadre.tool\ndef f(x):\n    '''Does.'''\n", "bad.py:3: tool f: parameter 'x'"),
        ("import cadre\n\n@cadre.tool\ndef f(x: int) -> int:\n    return x\n", "bad.py:3: tool f: "),
        ("def f(:\n", "bad.py:1: not valid Python: "),
        ("import nothing_of_this_name\n", "bad.py:1: cannot be imported: ModuleNotFoundError: "),
        ("x = 1 / 0\n", "bad.py:1: cannot be imported: ZeroDivisionError: "),
        ("x = 1\n", "@tool"),
    ],
)  # fmt: skip
def test_a_wrong_tool_module(alone: Commands, source: str, said: str) -> None:
    file = alone.folder / "bad.py"
    file.write_text(source)
    assert said in only_line(alone("tools", file), 2)


def test_a_tool_module_that_there_is_not(alone: Commands) -> None:
    assert "none.py: no such file" in only_line(alone("tools", "none.py"), 2)
    assert "no module named no_such_package" in only_line(alone("tools", "no_such_package.tools"), 2)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            "{agents: [good.yaml], tols: [x.py]}",
            "team.yaml: spec.tols",
        ),
        ("{agents: [good.yaml], tools: [none.py]}", "team.yaml: spec.tools[0]"),
        ("{agents: [bad.yaml]}", "bad.yaml: unknown key 'instrutions' in spec; "),
    ],
)
def test_a_wrong_team_file(alone: Commands, spec: str, said: str) -> None:
    (alone.folder / "good.yaml").write_text(GOOD)
    (alone.folder / "bad.yaml").write_text(GOOD.replace("Good.", "Good., instrutions: x"))
    head = "apiVersion: cadre.dev/v1\nkind: Team\nmetadata: {name: t}\n"
    (alone.folder / "team.yaml").write_text(f"{head}spec: {spec}\n")
    assert said in only_line(alone("up"), 2)


def test_a_team_whose_tool_cannot_be_loaded_ends_what_was_started(alone: Commands) -> None:
    (alone.folder / "good.yaml").write_text(GOOD)
    (alone.folder / "bad.py").write_text("import nothing_of_this_name\n")
    head = "apiVersion: cadre.dev/v1\nkind: Team\nmetadata: {name: t}\n"
    (alone.folder / "team.yaml").write_text(f"{head}spec: {{agents: [good.yaml], tools: [bad.py]}}\n")
    done = alone("up", "--port", 0)
    assert done.returncode == 2, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        f"cadre: bad: {alone.folder / 'bad.py'}:1: cannot be imported: ModuleNotFoundError"
    )
    assert "Traceback" not in done.stderr
    assert not (alone.folder / ".cadre" / "up.json").exists()


# --- settings, ports, servers


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("CADRE_SHARDS", "abc", "CADRE_SHARDS='abc': must be a whole number"),
        ("CADRE_SHARDS", "0", "CADRE_SHARDS=0: "),
        ("CADRE_DRAIN_SECONDS", "soon", "CADRE_DRAIN_SECONDS='soon': "),
        ("CADRE_PORT", "99999", "CADRE_PORT=99999: must be from 0 (any free port) to 65535"),
        ("CADRE_LOG_LEVEL", "LOUD", "CADRE_LOG_LEVEL=LOUD: "),
        ("CADRE_PREFIX", "my team", "CADRE_PREFIX='my team': use 1 to 64 letters"),
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


def test_wrong_usage_of_run(cadre: Commands) -> None:
    for arguments, said in (
        (["solo", "  "], "the task is empty"),
        (["solo", "x", "--input", "novalue"], "--input 'novalue': write NAME=VALUE"),
        (["solo", "x", "--input", "k=1", "--input", "k=2"], "--input k is given more than once"),
        (["solo", "broken \udcff"], "the task is not UTF-8 text (at character 8)"),
        (["solo", "x", "--image", "none.png"], "--image none.png: No such file or directory"),
        (["solo", "x", "--reset"], "--reset needs --session NAME"),
        (["solo", "x", "--session", "a b"], "session name 'a b': use 1 to 64 of the letters"),
        (["solo", "x", "--max-steps", "0"], "Invalid value for '--max-steps'"),
    ):
        assert said in only_line(cadre("run", *arguments), 2)


def test_the_model_reads_what_is_wrong_with_its_arguments(gateway: Gateway) -> None:
    run = gateway.submit("solo", "mismatch")
    result = gateway.finished(run)
    assert (result["state"], result["output"].splitlines()[-1][-1]) == ("success", "5")
    [refused] = [data["event"] for name, data in gateway.events(run) if name == "call.refused"]
    assert refused["error"]["type"] == "AgentToolCallError"
    assert "argument a: " in refused["error"]["message"]


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


def test_a_model_endpoint_that_is_not_there(gateway: Gateway, cadre: Commands) -> None:
    done = cadre("run", "unreachable", "hello")
    assert done.returncode == 1, done.stderr
    assert "http://127.0.0.1:9/v1" in done.stderr
    line = last_line(done)
    assert holds(line, "AgentGenerationError", "http://127.0.0.1:9/v1")
    assert "CADRE_MODEL_URL" in line
    [run] = gateway.request("GET", "/v1/runs", params={"agent": "unreachable"}).json()["runs"]
    names = [name for name, _ in gateway.events(run["id"])]
    assert (names.count("model.called"), names.count("model.deferred")) == (2, 1)


def test_a_model_endpoint_that_refuses_the_key(gateway: Gateway, cadre: Commands) -> None:
    """Asking again would not help: the run ends at once."""
    done = cadre("run", "locked", "hello")
    assert done.returncode == 1, done.stderr
    assert holds(last_line(done), "401", "CADRE_MODEL_KEY")
    [run] = gateway.request("GET", "/v1/runs", params={"agent": "locked"}).json()["runs"]
    names = [name for name, _ in gateway.events(run["id"])]
    assert (names.count("model.called"), names.count("model.deferred")) == (1, 0)


# --- HTTP


def test_a_body_that_is_too_large(gateway: Gateway) -> None:
    head = b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 40000000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", gateway.service.port), timeout=10) as connection:
        connection.sendall(head)
        answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert gateway.request("GET", "/v1/agents").status_code == 200

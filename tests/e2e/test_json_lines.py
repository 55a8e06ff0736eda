"""Whatever a service, its tools, programs and servers print, and however it ends: each line of its log is an object."""

import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.patience import eventually
from harness.stack import Gateway, Service, Stack

pytest.importorskip("mcp")

HERE = Path(__file__).parent / "printing"
AGENT = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {{name: {name}}}
spec: {{description: Talks., {more}}}
"""
SCRIPT = """
rules:
  - match: {has_tool: true}
    reply: {tool_calls: [{name: final_answer, arguments: {answer: "{{ tool }}"}}]}
  - match: {first: mutter}
    reply: {tool_calls: [{name: desk_mutter, arguments: {}}]}
  - match: {first: "say "}
    reply: {tool_calls: [{name: say, arguments: {way: "{{ first.split('say ')[1].split()[0] }}"}}]}
  - match: {first: "end "}
    reply: {tool_calls: [{name: end, arguments: {way: "{{ first.split('end ')[1].split()[0] }}"}}]}
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("stack")
    with Stack(folder) as stack:
        (script := folder / "script.yaml").write_text(SCRIPT)
        stack.environment |= {
            "CADRE_LOG_FORMAT": "json",
            "ENDED": str(ended := folder / "ended"),
        }
        ended.touch()
        stack.model(script)
        (folder / "mcp.json").write_text(
            json.dumps({"mcpServers": {"desk": {"command": sys.executable, "args": [str(HERE / "server.py")]}}})
        )
        for name, more in (
            ("clerk", "tools: [say, end, desk_mutter]"),
            ("talker", f"kind: program, program: {{main: '{HERE / 'talker.py'}:main'}}"),
        ):
            (folder / f"{name}.yaml").write_text(AGENT.format(name=name, more=more))
        stack.agent(folder / "clerk.yaml", start=False)
        stack.add("talker", "cadre.cli.main", "member", folder / "talker.yaml", start=False)
        stack.add("servers", "cadre_tools", "--mcp", folder / "mcp.json", start=False)
        stack.add("sandbox", "cadre_sandbox", start=False)
        memory = {"CADRE_MEMORY_DIRECTORY": str(folder / "memory"), "CADRE_MEMORY_EMBEDDINGS": "none"}
        stack.add("memory", "cadre_memory", start=False, **memory)
        stack.add("tracer", "cadre_tracer", start=False, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")
        yield stack


@pytest.fixture(scope="module")
def loud(stack: Stack) -> Service:
    return stack.add("loud", "cadre_tools", HERE / "loud.py", start=False, CADRE_HANG_SECONDS="3")


@pytest.fixture(scope="module")
def gateway(stack: Stack, loud: Service) -> Gateway:
    return stack.open_gateway(2)


def lines(service: Service) -> list[dict[str, Any]]:
    """Return the lines of a service's log, each of which must be an object."""
    found = [json.loads(line) for line in service.log.read_text().splitlines()]
    for one in found:
        assert {"time", "level", "logger", "message", "service", "instance"} <= one.keys(), one
    return found


def has(service: Service, logger: str, *messages: str) -> None:
    """Wait until the log has these messages by that logger."""

    def lacking() -> list[str]:
        said = {one["message"] for one in lines(service) if one["logger"] == logger}
        return [text[:80] for text in messages if text not in said]

    eventually(lambda: not lacking(), what=f"{logger} has logged it", state=lacking)


def test_prints_of_a_tool(loud: Service, gateway: Gateway) -> None:
    run = gateway.submit("clerk", "say print")
    gateway.succeeded(run)
    has(loud, "stdout", "printed at the import", "printed by the tool", "a line\x85of some\u2028parts", "L" * 1_000_000)
    has(loud, "stderr", "written at the import", "printed as an error")
    (one,) = [one for one in lines(loud) if one["message"] == "printed by the tool"]
    assert (one["run"], one["service"]) == (run, "say")


def test_bytes_that_pass_by_the_streams_of_python(loud: Service, gateway: Gateway) -> None:
    gateway.succeeded(gateway.submit("clerk", "say bytes"))
    has(loud, "stdout", "bytes \ufffd\ufffd", "written to 1")
    has(loud, "stderr", "written \ufffd to 2", "W" * 1_000_000, "begun and ended later")


def test_children_of_a_tool(loud: Service, gateway: Gateway) -> None:
    gateway.succeeded(gateway.submit("clerk", "say children"))
    has(loud, "stdout", "said by a child")
    has(loud, "stderr", "complained by a child", "C" * 20_000)


def test_warnings_and_threads_of_a_tool(loud: Service, gateway: Gateway) -> None:
    gateway.succeeded(gateway.submit("clerk", "say warn"))
    assert any("old habits" in one["message"] for one in lines(loud) if one["logger"] == "py.warnings")
    has(loud, "cadre.service", "thread careless ends with ZeroDivisionError")


def test_a_server_over_stdio(stack: Stack, gateway: Gateway) -> None:
    gateway.succeeded(gateway.submit("clerk", "mutter"))
    servers = stack.services["servers"]
    whole = ["the server begins", "half a line", "no \ufffd\ufffd text"]
    has(servers, "cadre.mcp.stderr", *(f"desk: {text}" for text in whole))
    said = [one for one in lines(servers) if one["logger"] == "cadre.mcp.stderr"]
    assert {one["mcp_server"] for one in said} == {"desk"}
    assert sum(one["message"].count("M") for one in said) == 1_000_000
    assert servers.terminate() == 0
    has(servers, "cadre.mcp.stderr", "desk: without an end")


def test_a_program_and_its_children(stack: Stack, gateway: Gateway) -> None:
    gateway.succeeded(gateway.submit("talker", "hello"))
    talker = stack.services["talker"]
    has(talker, "stderr", "the program is imported", "the program printed")
    has(talker, "stderr", "the program wrote \ufffdthe child of the program")


@pytest.mark.parametrize("way", ["exit", "fault", "hang"])
def test_the_last_words_of_a_process(loud: Service, gateway: Gateway, way: str) -> None:
    run = gateway.submit("clerk", f"end {way}")
    assert loud.process is not None
    eventually(lambda: not loud.is_running, what="the process has ended")
    match way:
        case "exit":
            has(loud, "stderr", "the last words")
        case "fault":
            has(loud, "stderr", "about to fail")
        case "hang":
            has(loud, "cadre.service", "the event loop does not turn: the process ends")
            (hang,) = [one for one in lines(loud) if one.get("exception", {}).get("type") == "Hang"]
            assert any(frame.split(":")[0].endswith("loud.py") for frame in hang["exception"]["stack"])
    loud.start()
    gateway.succeeded(run)


def test_the_end_of_each_service(stack: Stack, gateway: Gateway) -> None:
    """By a signal while it works, by one while it starts, and by an error of its setup."""
    for service in stack.services.values():
        if not service.is_running:
            continue
        assert service.terminate() == 0
        assert lines(service)[-1]["message"].endswith(": stopped") or service.name == "model"
        service.log.unlink()
        service.start(wait=False)
        eventually(partial(has_begun, service), what="it begins")
        if service.name == "memory":
            service.kill()
        else:
            service.terminate()
        assert lines(service)


def has_begun(service: Service) -> bool:
    return service.log.exists() and bool(service.log.read_text())

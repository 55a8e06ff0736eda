"""Messages to runs under way, over HTTP and by command: the model call in flight is dropped at once."""

import signal
import time
from pathlib import Path

import pytest

from harness.command import Commands
from harness.stack import Gateway, Stack

AGENT = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: NAME}
spec: {description: Works., SPEC}
"""
SCRIPT = """
rules:
  - name: told
    match: {user: Hurry}
    reply: {tool_calls: [{name: final_answer, arguments: {answer: hurried}}]}
  - name: reported
    match: {has_tool: true}
    reply: {tool_calls: [{name: final_answer, arguments: {answer: led}}]}
  - name: boss
    match: {user: Lead}
    reply: {tool_calls: [{name: worker, arguments: {task: Dawdle.}}]}
  - name: slow
    match: {user: Dawdle}
    reply: {latency: 300, tool_calls: [{name: final_answer, arguments: {answer: dawdled}}]}
"""


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    return Stack(tmp_path)


def begin(stack: Stack) -> Gateway:
    folder = stack.folder
    (folder / "script.yaml").write_text(SCRIPT)
    for name, more in (("worker", "tools: []"), ("boss", "team: [worker]")):
        (folder / f"{name}.yaml").write_text(AGENT.replace("NAME", name).replace("SPEC", more))
    stack.model(folder / "script.yaml")
    stack.agent(folder / "worker.yaml", start=False)
    stack.agent(folder / "boss.yaml", start=False)
    return stack.open_gateway(2)


def test_an_interrupt_deep_in_a_tree_has_its_model_asked_at_once(stack: Stack) -> None:
    with stack:
        gateway = begin(stack)
        root = gateway.submit("boss", "Lead.")
        child = f"{root}_1_0"
        gateway.wait_for(root, "model.called", run=child)
        command = Commands(stack.folder, {**stack.environment, "CADRE_GATEWAY_URL": gateway.service.url})
        told = time.monotonic()
        done = command("tell", child, "Hurry up.", "--mode", "interrupt", "--by", "ann")
        assert (done.returncode, done.stdout) == (0, f"{child} has it\n"), done.stderr
        assert gateway.succeeded(root) == "led"
        assert time.monotonic() - told < 60
        assert gateway.run(child)["output"] == "hurried"
        events = [(name, data["event"]) for name, data in gateway.events(child) if "event" in data]
        assert [event for name, event in events if name == "message.received"] == [
            {"type": "message.received", "text": "Hurry up.", "mode": "interrupt", "sender": "ann"}
        ]
        assert [event["attempt"] for name, event in events if name == "model.called"] == [1, 2]
        late = gateway.request("POST", f"/v1/runs/{child}/messages", json={"text": "Too late."})
        assert (late.status_code, late.json()["code"]) == (409, "run-ended")
        shown = command("show", root, "--replay").stdout
        assert "Hurry up." in command("show", child, "--replay").stdout + shown
        assert command("replay", root).returncode == 0


def test_a_message_survives_the_death_of_the_agent_that_took_it(stack: Stack) -> None:
    with stack:
        gateway = begin(stack)
        run = gateway.submit("worker", "Dawdle.")
        gateway.wait_for(run, "model.called")
        stack.services["worker"].kill()
        path = f"/v1/runs/{run}/messages"
        keyed = {"headers": {"Idempotency-Key": "once"}}
        sent = [
            gateway.request("POST", path, json={"text": "Hurry up.", "mode": "interrupt"}, **keyed) for _ in range(2)
        ]
        assert {one.json()["id"] for one in sent} == {sent[0].json()["id"]}
        assert gateway.request("POST", path, json={"text": " "}).status_code == 422
        assert gateway.request("POST", path, json={"text": "x", "mode": "now"}).status_code == 422
        assert gateway.request("POST", path, json={"text": "x" * 32_001}).status_code == 413
        stack.services["worker"].start()
        assert gateway.succeeded(run) == "hurried"
        names = [name for name, _ in gateway.events(run)]
        assert names.count("message.received") == 1


def test_what_is_acknowledged_in_order_is_read_in_order_although_the_agent_is_killed(stack: Stack) -> None:
    """The first message is in the hands of a process that dies with it, and is delivered again behind the others."""
    with stack:
        gateway = begin(stack)
        run = gateway.submit("worker", "Dawdle.")
        gateway.wait_for(run, "model.called")
        path, texts = f"/v1/runs/{run}/messages", [f"note {number}" for number in range(8)]

        def say(text: str, **more: str) -> None:
            assert gateway.request("POST", path, json={"text": text, **more}).status_code in (200, 202)

        stack.services["worker"].signal(signal.SIGSTOP)
        say(texts[0])
        stack.services["worker"].kill()
        stack.services["worker"].start()
        for text in texts[1:]:
            say(text)
        say("Hurry up.", mode="interrupt")
        assert gateway.succeeded(run) == "hurried"
        received = [data["event"]["text"] for name, data in gateway.events(run) if name == "message.received"]
        assert received == [*texts, "Hurry up."]

"""Patient agents that wait while every service is dead: by the clock, for months, and for a signal from outside."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from cadre.adapters.nats.streams import jetstream
from harness.command import Commands
from harness.patience import eventually, patience
from harness.stack import Gateway, Stack

TOOLS = '''
from cadre import tool


@tool(read_only=True)
def look() -> str:
    """Look."""
    return "a hoopoe"
'''
SCRIPT = """
rules:
  - name: last
    match: {has_tool: true}
    reply: {tool_calls: [{name: final_answer, arguments: {answer: seen}}]}
  - name: first
    match: {has_tool: false}
    reply: {tool_calls: [{name: look, arguments: {}}]}
"""
AGENT = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: NAME}
spec: {description: Waits., kind: patient, patient: SECTION, tools: [look]}
"""
PAUSE_SECONDS = 6.0
QUARTER_SECONDS = 90 * 86_400.0


def world(folder: Path, stack: Stack, section: str) -> Gateway:
    (folder / "waiter.yaml").write_text(AGENT.replace("NAME", "waiter").replace("SECTION", section))
    (folder / "tools.py").write_text(TOOLS)
    (folder / "script.yaml").write_text(SCRIPT)
    stack.model(folder / "script.yaml")
    stack.agent(folder / "waiter.yaml", start=False)
    stack.tools(folder / "tools.py", start=False)
    return stack.open_gateway(1)


def waiting(gateway: Gateway, run: str, what: str) -> None:
    eventually(lambda: gateway.run(run)["waiting_for"] == what, what=f"the run waits for {what}")


def kill_all(stack: Stack) -> None:
    for name in ("waiter", "tools", "gateway"):
        stack.services[name].kill()


def cli(stack: Stack, folder: Path, gateway: Gateway) -> Commands:
    return Commands(folder, {**stack.environment, "CADRE_GATEWAY_URL": gateway.service.url})


def test_a_wait_ends_to_the_second_though_all_services_were_dead(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        gateway = world(tmp_path, stack, f"{{pause: {PAUSE_SECONDS}}}")
        run = gateway.submit("waiter", "Look.")
        begun = gateway.wait_for(run, "wait.started")
        assert begun["event"]["until"] == pytest.approx(begun["at"] + PAUSE_SECONDS)
        kill_all(stack)
        time.sleep(1.0)
        stack.nats.kill()
        stack.nats.start()
        stack.start_all()
        back = time.time()
        assert gateway.succeeded(run) == "seen"
        ended = next(data for name, data in gateway.events(run) if name == "wait.finished")
        assert ended["at"] - begun["event"]["until"] >= -0.01
        assert ended["at"] - max(begun["event"]["until"], back) < patience(1.0)


def test_a_quarter_of_a_year_is_a_schedule_and_a_signal_ends_it(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        gateway = world(tmp_path, stack, f"{{pause: {QUARTER_SECONDS}, signal: go}}")
        run = gateway.submit("waiter", "Look.")
        waiting(gateway, run, "signal go")
        assert asyncio.run(schedules(stack, run)) == 1
        kill_all(stack)
        stack.services["gateway"].start()
        command = cli(stack, tmp_path, gateway)
        sent = command("signal", run, "go", '{"by": "a person"}', "--by", "ann", "-o", "json")
        assert sent.returncode == 0, sent.stderr
        assert json.loads(sent.stdout)["at"] is None, "it is kept until its agent is there"
        assert gateway.run(run)["state"] == "waiting"
        stack.start_all()
        assert gateway.succeeded(run) == "seen"
        events = {name: data["event"] for name, data in gateway.events(run) if name != "end"}
        assert events["signal.received"]["payload"] == {"by": "a person"}
        assert events["signal.received"]["sender"] == "ann"
        assert events["wait.finished"]["signal"] == "go"
        assert asyncio.run(schedules(stack, run)) == 0


def test_signals_over_http(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        gateway = world(tmp_path, stack, "{signal: go}")
        run = gateway.submit("waiter", "Look.")
        waiting(gateway, run, "signal go")
        path = f"/v1/runs/{run}/signals"
        assert gateway.request("POST", f"{path}/no.name").status_code == 422
        assert gateway.request("POST", f"{path}/other", content=b"{").status_code == 400
        assert gateway.request("POST", f"{path}/other", json="x" * 70_000).status_code == 413
        assert gateway.request("POST", f"/v1/runs/{'0' * 32}/signals/go").status_code == 404
        keyed = {"headers": {"Idempotency-Key": "k1"}}
        first = gateway.request("POST", f"{path}/other", json=1, **keyed)
        again = gateway.request("POST", f"{path}/other", json=1, **keyed)
        assert (first.status_code, first.json()) == (200, again.json())
        assert gateway.request("POST", f"{path}/other", json=2, **keyed).status_code == 422
        answers = [gateway.request("POST", f"{path}/more", json=n) for n in range(64)]
        assert [one.status_code for one in answers] == [200] * 63 + [409]
        assert answers[-1].json()["code"] == "signals-full"
        kept = [json.dumps(data["event"]) for name, data in seen(gateway, run) if name == "signal.received"]
        assert len(kept) == 64


def seen(gateway: Gateway, run: str) -> list[tuple[str, dict[str, object]]]:
    """Return what has happened to the run until it is cancelled, which ends it."""
    assert gateway.request("POST", f"/v1/runs/{run}/cancel").status_code == 202
    gateway.finished(run)
    assert gateway.request("POST", f"/v1/runs/{run}/signals/go").json()["code"] == "run-ended"
    return list(gateway.events(run))


async def schedules(stack: Stack, run: str) -> int:
    """The run's message schedules."""
    async with stack.platform() as platform:
        topology = platform.topology
        subject = topology.timer(run, run, "kind-pause")
        query = {"seq": 1, "batch": 10, "next_by_subj": subject}
        return len(await jetstream.batch(platform.nc, topology.stream_of(run), query))

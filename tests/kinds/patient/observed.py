"""A patient agent seen from outside: traces, metrics, words on the terminal, the stream of events, manifests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from patient_kind.records import PatientSpec

from cadre.deploy.k8s.render import render
from cadre.deploy.k8s.values import read_values
from cadre.deploy.team_components import components_of
from cadre.deploy.team_file import read_team
from cadre.spec.agent_file import read_agent
from cadre.spec.kinds import sections
from cadre.telemetry.tracing.page import trace_of
from harness.stack import Stack
from unit.k8s.faults import faults
from unit.k8s.shipped import GIVEN
from unit.loop.build import ANSWER, SimulatedRun, call, result, spec

AGENT = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: waiter}
spec:
  description: Waits.
  kind: patient
  patient: {pause: 0.2}
  tools: [look]
"""
SCRIPT = """
rules:
  - name: last
    match: {has_tool: true}
    reply: {tool_calls: [{name: final_answer, arguments: {answer: seen}}]}
  - name: first
    match: {has_tool: false}
    reply: {tool_calls: [{name: look, arguments: {}}]}
"""
TOOLS = '''
from cadre import tool


@tool(read_only=True)
def look() -> str:
    """Look."""
    return "a hoopoe"
'''


def test_its_spans_stand_in_the_one_tree() -> None:
    sim = SimulatedRun(spec(kind="patient", **sections(PatientSpec()))).begin()
    sim.say(call("look", at="sky"))
    sim.arrive(result(sim.id(), 3))
    sim.say(ANSWER)
    spans = trace_of(sim.journal(), now=0.0, content=False)
    assert [span.name for span in spans if span.parent is None] == ["invoke_workflow boss"]
    assert "note" in [span.name for span in spans]


def test_its_file_is_read_and_a_wrong_section_refused(tmp_path: Path) -> None:
    file = tmp_path / "waiter.yaml"
    file.write_text(AGENT)
    assert read_agent(file).kind == "patient"
    file.write_text(AGENT.replace("pause", "paws"))
    with pytest.raises(Exception, match=r"unknown key 'paws' in spec\.patient"):
        read_agent(file)


def test_a_team_with_it_becomes_manifests(tmp_path: Path) -> None:
    (tmp_path / "waiter.yaml").write_text(AGENT)
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "team.yaml").write_text(
        "apiVersion: cadre.dev/v1\nkind: Team\nmetadata: {name: waiters}\n"
        "spec: {agents: [waiter.yaml], tools: [tools.py]}\n"
    )
    values = read_values(
        {"image": "registry.example/cadre:1", "model": {"url": "https://models.example/v1", "name": "m"}}
    )
    files = render(components_of(read_team(tmp_path), values), values, None)
    manifests = [manifest for file in files.values() for manifest in file]
    assert "agent-waiter" in [one["metadata"]["name"] for one in manifests if one["kind"] == "Deployment"]
    assert faults(manifests, GIVEN) == []


def test_a_real_service_runs_it_and_its_events_are_streamed(tmp_path: Path) -> None:
    (tmp_path / "waiter.yaml").write_text(AGENT)
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "script.yaml").write_text(SCRIPT)
    with Stack(tmp_path) as stack:
        stack.model(tmp_path / "script.yaml")
        stack.agent(tmp_path / "waiter.yaml", start=False)
        stack.tools(tmp_path / "tools.py", start=False)
        gateway = stack.open_gateway()
        run = gateway.submit("waiter", "Look.")
        found = gateway.finished(run)
        names = [name for name, _ in gateway.events(run)]
        shown = show_without_the_kind(gateway.service.url, run)
    assert (found["state"], found["output"]) == ("success", "seen")
    assert names.count("patient.noted") == 1
    assert names.index("wait.started") < names.index("wait.finished")
    assert "waiter: notes 1 calls" in shown


def show_without_the_kind(url: str, run: str) -> str:
    """Return what `cadre show --follow` prints of a run where only the gateway has its kind."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    missing = "from cadre.spec.kinds import declared_kinds; assert 'patient' not in declared_kinds()"
    subprocess.run([sys.executable, "-c", missing], env=environment, check=True)
    done = subprocess.run(
        [sys.executable, "-m", "cadre.cli.main", "show", run, "--follow"],
        env={**environment, "CADRE_GATEWAY_URL": url},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr

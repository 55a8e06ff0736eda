"""`cadre backup` while a team is at work, and `cadre restore` at a server that has nothing."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest

from cadre.adapters.nats.streams.backup import DIGESTS
from cadre_memory.tools.keep import chunk_id
from harness.command import Commands, commands_of, only_line
from harness.stack import Gateway, Stack
from harness.texts import holds

TEAM = Path(__file__).parent / "held"


class Deployment(NamedTuple):
    """A team whose refunds leave lines in files."""

    stack: Stack
    gateway: Gateway
    cadre: Commands
    folder: Path

    def refund(self, name: str, amount: int, agent: str = "clerk") -> str:
        before = "have clerk: " if agent == "chief" else ""
        return self.gateway.submit(agent, f"{before}refund {self.folder / name} {amount}")

    def refunds(self, name: str) -> list[str]:
        return (self.folder / name).read_text().splitlines()


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with Stack(tmp_path) as stack:
        stack.model(TEAM / "script.yaml")
        memory = {"CADRE_MEMORY_DIRECTORY": str(tmp_path / "memory"), "CADRE_MEMORY_EMBEDDINGS": "none"}
        stack.add("memory", "cadre_memory", start=False, **memory)
        for agent in ("chief", "clerk"):
            stack.agent(TEAM / f"{agent}.yaml", start=False)
        stack.tools(TEAM / "tools.py", start=False)
        gateway = stack.open_gateway(2)
        yield Deployment(stack, gateway, commands_of(stack, tmp_path), tmp_path)


def lose_everything(stack: Stack) -> None:
    """The processes die, and the disks of the server and of the memory service with them."""
    for name, service in stack.services.items():
        if name != "model":
            service.kill()
    stack.nats.kill()
    shutil.rmtree(stack.folder / "store")
    shutil.rmtree(stack.folder / "memory")
    stack.nats.start()


def remember(cadre: Commands, folder: Path) -> None:
    """The deployment has one memory, of a person."""
    memory = uuid4().hex
    words = {
        "id": chunk_id(memory, 0),
        "memory": memory,
        "text": "Anna is allergic to nuts.",
        "scope": "user",
    }
    origin = {"tree": "t", "run": "t", "agent": "clerk", "user": "anna", "kind": "note", "at": time.time()}
    (folder / "told.jsonl").write_text(json.dumps(words | origin) + "\n")
    assert cadre("memory", "import", folder / "told.jsonl").returncode == 0


def test_a_deployment_goes_on_from_its_backup(deployment: Deployment) -> None:
    gateway, cadre, saved = deployment.gateway, deployment.cadre, deployment.folder / "saved"
    remember(cadre, deployment.folder)
    memories = saved / "memories.jsonl"
    done = deployment.refund("done", 5)
    answer = gateway.succeeded(done)
    held = deployment.refund("held", 500, "chief")
    question = gateway.wait_for(held, "delegate.started")["event"]["call"]
    call = gateway.wait_for(question, "approval.requested")["event"]["call"]
    submitted: list[str] = []
    enough = threading.Event()

    def go_on() -> None:
        while not enough.is_set():
            submitted.append(deployment.refund("meanwhile", 7))
            gateway.finished(submitted[-1])

    working = threading.Thread(target=go_on)
    working.start()
    try:
        made = cadre("backup", saved, "--memories")
    finally:
        enough.set()
        working.join()
    assert made.returncode == 0, made.stderr
    assert "CADRE-0" in made.stderr

    lose_everything(deployment.stack)
    restored = cadre("restore", saved)
    assert restored.returncode == 0, restored.stderr
    assert f"cadre memory import {memories}" in restored.stdout
    deployment.stack.start_all()
    gateway.wait_offered(2)
    assert "Anna" not in cadre("memory", "list", "--all").stdout
    assert cadre("memory", "import", memories).stdout == "kept: 1\n"
    assert "Anna is allergic to nuts." in cadre("memory", "search", "nuts", "--user", "anna").stdout

    assert gateway.succeeded(done) == answer
    known = [run for run in submitted if gateway.request("GET", f"/v1/runs/{run}").status_code == 200]
    for run in known:
        gateway.succeeded(run)
    decided = gateway.request("POST", f"/v1/approvals/{call}", json={"verdict": "approved"})
    assert decided.status_code in (200, 202), decided.text
    gateway.succeeded(held)
    gateway.succeeded(deployment.refund("after", 9))
    assert [deployment.refunds(name) for name in ("done", "held", "after")] == [
        ["refund 5"],
        ["refund 500"],
        ["refund 9"],
    ], "no effect was repeated"
    for run in (done, held, *known):
        assert cadre("verify", run).returncode == 0

    # A service that starts once more finds queues that begin in the middle of their streams.
    deployment.stack.services["clerk"].kill()
    deployment.stack.services["clerk"].start()
    gateway.succeeded(deployment.refund("later", 11))


def test_what_cannot_be_done_is_said_and_changes_nothing(deployment: Deployment) -> None:
    gateway, cadre, folder = deployment.gateway, deployment.cadre, deployment.folder
    run = deployment.refund("done", 5)
    gateway.succeeded(run)
    saved = folder / "saved"
    assert cadre("backup", saved).returncode == 0
    nobody = cadre("backup", folder / "half", "--memories", CADRE_GATEWAY_URL="http://127.0.0.1:9")
    assert "http://127.0.0.1:9" in nobody.stderr.splitlines()[-1]
    assert nobody.returncode == 5
    assert holds(only_line(cadre("restore", folder / "half"), 2), folder / "half", DIGESTS)
    assert holds(only_line(cadre("backup", saved), 2), saved, os.strerror(errno.EEXIST))
    assert "'other'" in only_line(cadre("backup", folder / "b", CADRE_PREFIX="other"), 2)
    assert holds(only_line(cadre("restore", saved), 2), "CADRE-0", "--replace")
    assert holds(only_line(cadre("restore", folder), 2), folder, DIGESTS)
    assert "CADRE_PREFIX is 'other'" in only_line(cadre("restore", saved, CADRE_PREFIX="other"), 2)
    file = saved / "CADRE-1" / "stream.tar.s2"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert "differs" in only_line(cadre("restore", saved, "--replace"), 2)
    assert gateway.run(run)["state"] == "success"


def test_a_backup_takes_the_place_of_what_is_there(deployment: Deployment) -> None:
    gateway, cadre, saved = deployment.gateway, deployment.cadre, deployment.folder / "saved"
    first = deployment.refund("done", 5)
    gateway.succeeded(first)
    assert cadre("backup", saved).returncode == 0
    second = deployment.refund("done", 6)
    gateway.succeeded(second)
    for name, service in deployment.stack.services.items():
        if name != "model":
            service.terminate()
    assert cadre("restore", saved, "--replace").returncode == 0
    deployment.stack.start_all()
    gateway.wait_offered(2)
    assert gateway.run(first)["state"] == "success"
    assert gateway.request("GET", f"/v1/runs/{second}").status_code == 404
    listed = gateway.request("GET", "/v1/runs").json()["runs"]
    assert [run["id"] for run in listed] == [first], "the index has forgotten it too"

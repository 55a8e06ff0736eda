"""NATS is there and passes messages on, but its JetStream answers nothing, or only in part: every service says so
within seconds, and all runs are whole once it answers again."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from harness.command import commands_of
from harness.nats_proxy import API, PULLS, NatsProxy
from harness.nats_server import free_port
from harness.patience import eventually, patience
from harness.people import done
from harness.stack import Gateway, Service, Stack

TEAM = Path(__file__).parent / "team"

SOON = 20.0
"""Seconds in which a service must have noticed: a pull that is open already stays so for ten."""


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[NatsProxy]:
    """In front of the server of `stack`."""
    port = free_port()
    with NatsProxy(port) as proxy:
        yield proxy


@pytest.fixture
def stack(proxy: NatsProxy, tmp_path: Path) -> Iterator[Stack]:
    with Stack(tmp_path, nats_port=proxy.server_port) as stack:
        stack.environment["CADRE_NATS_URL"] = proxy.url
        stack.model(TEAM / "script.yaml")
        for file in sorted(TEAM.glob("*.yaml")):
            if file.name != "script.yaml":
                stack.agent(file, start=False)
        stack.tools(TEAM / "tools.py", start=False)
        memory = {"CADRE_MEMORY_DIRECTORY": str(tmp_path / "memory"), "CADRE_MEMORY_EMBEDDINGS": "none"}
        stack.add("memory", "cadre_memory", start=False, **memory)
        stack.add("sandbox", "cadre_sandbox", start=False)
        receiver = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}"}
        stack.add("tracer", "cadre_tracer", start=False, OTEL_EXPORTER_OTLP_TIMEOUT="1", **receiver)
        yield stack


@pytest.fixture
def gateway(stack: Stack) -> Gateway:
    return stack.open_gateway(3)


def readyz(service: Service) -> tuple[int, dict[str, Any]]:
    answer = httpx2.get(f"{service.url}/readyz", timeout=patience())
    return answer.status_code, answer.json()


def watching(stack: Stack) -> list[Service]:
    """The services that are clients of NATS."""
    return [service for name, service in stack.services.items() if name != "model"]


def until_said(services: list[Service], codes: set[str]) -> None:
    said: dict[str, Any] = {}
    began = time.monotonic()

    def all_say() -> bool:
        said.update({one.name: readyz(one)[1].get("code", "ready") for one in services})
        return set(said.values()) <= codes

    eventually(all_say, what=f"every service says one of {codes}", state=lambda: said)
    assert time.monotonic() - began < patience(SOON), "within seconds"


def until_ready(services: list[Service]) -> None:
    eventually(lambda: all(readyz(one)[0] == 200 for one in services), what="every service is ready again")


SILENCES: dict[str, tuple[Callable[[NatsProxy], None], set[str], set[str]]] = {
    "the API": (lambda proxy: proxy.swallow(API), {"jetstream-silent"}, set()),
    "acks of publishes": (NatsProxy.swallow_acks, {"publishes-silent", "store-refuses"}, {"tracer"}),
    "pulls": (lambda proxy: proxy.swallow(PULLS), {"pulls-silent"}, set()),
}
"""By name: the messages kept back, the codes that services report for it, and the services that never ask for it."""


@pytest.mark.parametrize("silence", SILENCES)
def test_a_standstill_is_told_and_ends_with_all_runs_whole(
    stack: Stack, gateway: Gateway, proxy: NatsProxy, silence: str, tmp_path: Path
) -> None:
    keep_back, codes, unconcerned = SILENCES[silence]
    files = [tmp_path / f"marks-{number}" for number in range(6)]
    runs = [gateway.submit("boss", f"delegate: use effect {file} 2") for file in files]
    eventually(lambda: bool(done(files[0])), what="a tool is at work")
    keep_back(proxy)
    services = [one for one in watching(stack) if one.name not in unconcerned]
    until_said(services, codes)
    for one in services:
        assert httpx2.get(f"{one.url}/healthz", timeout=patience()).status_code == 200
        figures = httpx2.get(f"{one.url}/metrics", timeout=patience()).text
        states = re.findall(r'cadre_store_trouble\{.*cadre_store_state="(?:silent|refuses)"\} 1\.0', figures)
        assert states, (one.name, "the alert has something to go by")
    proxy.let_pass()
    until_ready(watching(stack))
    for run, file in zip(runs, files, strict=True):
        result = gateway.finished(run)
        assert (result["state"], len(done(file))) == ("success", 1), result
    assert gateway.answer("worker", "think 0") == "thought"
    cadre = commands_of(stack, tmp_path)
    for run in runs:
        verified = cadre("verify", run)
        assert verified.returncode == 0, verified.stdout + verified.stderr
    for one in services:
        lines = [line for line in one.log.read_text().splitlines() if "cadre.nats: " in line]
        named = [code for code in codes if any(f" ERROR cadre.nats: {code}: " in line for line in lines)]
        assert named, (one.name, lines)
        if silence == "the API":
            told = [line for line in lines if " ERROR " in line]
            assert len(told) == 1, (one.name, told)

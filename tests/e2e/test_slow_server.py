"""A NATS server that is paused or answers late, under many runs: no one reads more for that, and no one asks twice."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.nats_proxy import JOURNAL_READS, NatsProxy
from harness.nats_server import free_port
from harness.patience import eventually
from harness.stack import Gateway, Service, Stack

RUNS = 60
AGENT = Path(__file__).parent / "team" / "helper.yaml"
SCRIPT = """
rules:
  - match: {system: You are the helper}
    reply: {hold: true, tool_calls: [{name: final_answer, arguments: {answer: well}}]}
"""


@pytest.fixture
def proxy() -> Iterator[NatsProxy]:
    """Between the agent and the server."""
    with NatsProxy(free_port()) as proxy:
        proxy.counted = JOURNAL_READS
        yield proxy


@pytest.fixture
def stack(proxy: NatsProxy, tmp_path: Path) -> Iterator[Stack]:
    with Stack(tmp_path, nats_port=proxy.server_port) as stack:
        script = tmp_path / "script.yaml"
        script.write_text(SCRIPT)
        stack.model(script)
        yield stack


@pytest.fixture
def gateway(stack: Stack, proxy: NatsProxy) -> Gateway:
    gateway = stack.gateway()
    stack.add("helper", "cadre_agent", AGENT, CADRE_NATS_URL=proxy.url)
    gateway.wait_offered(1)
    return gateway


def begin(stack: Stack, gateway: Gateway) -> list[str]:
    """Runs whose model calls are all on their way."""
    runs = [gateway.submit("helper", f"number {number}") for number in range(RUNS)]
    eventually(lambda: len(stack.model_requests()) >= RUNS, what="the model is asked for each run")
    return runs


def all_end_with_one_request_each(stack: Stack, gateway: Gateway, runs: list[str]) -> None:
    for run in runs:
        assert gateway.succeeded(run) == "well"
    assert len(stack.model_requests()) == RUNS, "no run asks its model twice"


def unanswered(agent: Service) -> int:
    """Return the number of appends that the agent has given up waiting for."""
    return len(set(re.findall(r"(cadre\.run\.\S+) was sent but its answer never came", agent.log.read_text())))


def test_answers_of_models_outlive_a_pause_of_the_server(stack: Stack, gateway: Gateway, proxy: NatsProxy) -> None:
    runs = begin(stack, gateway)
    stack.nats.pause()
    stack.release_model()
    agent = stack.services["helper"]
    eventually(lambda: unanswered(agent) == RUNS, what="the journal of each run gives no answer")
    stack.nats.go_on()
    all_end_with_one_request_each(stack, gateway, runs)
    assert proxy.asked <= RUNS, "one read at most for an append whose outcome was unknown"


@pytest.mark.parametrize("seconds", [0.5, 2.5])
def test_the_reads_of_runs_do_not_rise_with_the_time_that_answers_take(
    stack: Stack, gateway: Gateway, proxy: NatsProxy, seconds: float
) -> None:
    proxy.answer_late(re.compile(r"\$JS\.API\.(STREAM|DIRECT)\.|cadre\."), seconds)
    runs = begin(stack, gateway)
    stack.release_model()
    all_end_with_one_request_each(stack, gateway, runs)
    assert proxy.asked == 0, "nothing is read that this worker has just written"

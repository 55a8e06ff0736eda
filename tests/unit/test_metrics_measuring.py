"""Tests of when a process begins to count, what /metrics answers, and that a receiver which is down holds no one up."""

import asyncio
import logging
import re
import time

import pytest

from cadre.errors import BusUnavailable, SettingError
from cadre.service.health import HealthAnswer
from cadre.service.metrics import Measuring
from cadre.settings import MetricsSettings, read_metrics_settings
from cadre.telemetry.metrics.meters import Meters, Sample
from cadre.telemetry.metrics.names import APPROVALS, STEPS
from harness.nats_server import free_port
from harness.otlp_receiver import OtlpReceiver


async def now() -> list[Sample]:
    return [Sample(APPROVALS, 3)]


async def no_bus() -> list[Sample]:
    raise BusUnavailable("asking", "nobody there")


def measuring(meters: Meters, **settings: object) -> Measuring:
    return Measuring(MetricsSettings(**settings), meters, "worker", "worker-1", now)  # type: ignore[arg-type]


async def test_what_was_counted_before_the_first_look_is_told() -> None:
    meters = Meters()
    one = measuring(meters)
    await one.start()
    meters.record(STEPS, 1, {"gen_ai.agent.name": "worker"})
    shown = (await one.answer()).body.decode()
    assert "cadre_approvals_waiting 3.0" in shown
    assert 'cadre_steps_total{gen_ai_agent_name="worker"} 1.0' in shown


async def test_off_answers_nothing() -> None:
    one = measuring(Meters(on=False), endpoint="http://127.0.0.1:9")
    await one.start()
    assert (await one.answer()).status == 404
    await one.stop(1)


async def test_what_cannot_be_read_now_is_left_out() -> None:
    one = Measuring(MetricsSettings(), Meters(), "worker", "worker-1", no_bus)
    answer: HealthAnswer = await one.answer()
    assert answer.status == 200
    assert b"cadre_approvals" not in answer.body


async def test_figures_are_sent_now_and_then_and_at_the_end() -> None:
    with OtlpReceiver() as receiver:
        meters = Meters()
        one = measuring(meters, endpoint=f"{receiver.url}/v1/metrics", interval=0.2, timeout=2.0)
        await one.start()
        await asyncio.to_thread(receiver.until, lambda: bool(receiver.points), "the first measurements")
        assert {(p.service, p.name, p.value) for p in receiver.points} >= {("worker", "cadre.approvals.waiting", 3.0)}
        meters.record(STEPS, 1)
        await one.stop(10)
        assert "cadre.steps" in {point.name for point in receiver.points}


async def test_points_that_the_receiver_rejects_count_as_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    with OtlpReceiver() as receiver, caplog.at_level(logging.WARNING):
        receiver.partial = (2, "too old")
        one = measuring(Meters(), endpoint=f"{receiver.url}/v1/metrics", interval=0.05, timeout=2.0)
        await one.start()
        await asyncio.to_thread(receiver.until, lambda: len(receiver.requests) > 2, "three exports")
        shown = (await one.answer()).body.decode()
        await one.stop(10)
    assert re.search(r"cadre_metrics_export_failures_total(\{.*\})? [1-9]", shown)
    assert len([one for one in caplog.records if "too old" in one.getMessage()]) == 1, "once"


async def test_a_receiver_that_is_down_is_told_of_once_and_waited_for_no_longer_than_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reads, thrice = 0, asyncio.Event()

    async def read() -> list[Sample]:
        nonlocal reads
        reads += 1
        if reads == 3:
            thrice.set()
        return await now()

    endpoint = f"http://127.0.0.1:{free_port()}/v1/metrics"
    settings = MetricsSettings(endpoint=endpoint, interval=0.05, timeout=0.3)
    one = Measuring(settings, Meters(), "worker", "worker-1", read)
    with caplog.at_level(logging.WARNING):
        await one.start()
        await asyncio.wait_for(thrice.wait(), 60)  # two exports have failed before the third begins
        began = time.monotonic()
        await one.stop(1.0)
        assert time.monotonic() - began < 5
    assert b"cadre_metrics_export_failures_total" in (await one.answer()).body
    shown = [r.getMessage() for r in caplog.records if "receiver of metrics" in r.getMessage()]
    assert len(shown) == 1


@pytest.mark.parametrize(
    ("variables", "shown"),
    [
        ({}, (True, "", 60.0)),
        ({"CADRE_METRICS": "off"}, (False, "", 60.0)),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://here:4318"}, (True, "http://here:4318/v1/metrics", 60.0)),
        (
            {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://m/x", "OTEL_METRIC_EXPORT_INTERVAL": "5000"},
            (True, "http://m/x", 5.0),
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://here:4318", "OTEL_METRICS_EXPORTER": "none"},
            (True, "", 60.0),
        ),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://here:4318/v1/traces"}, (True, "", 60.0)),
    ],
)
def test_the_variables(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], shown: tuple[bool, str, float]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = read_metrics_settings()
    assert (found.on, found.endpoint, found.interval) == shown


@pytest.mark.parametrize(("name", "value"), [("CADRE_METRICS", "yes"), ("OTEL_METRIC_EXPORT_INTERVAL", "often")])
def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingError, match=f"{name}={value}"):
        read_metrics_settings()

"""Lines of a log as objects: what each says, and of which run."""

import json
import logging
from typing import Any

import pytest

from cadre.errors import SettingError
from cadre.journal import events as ev
from cadre.protocol.topology import Topology
from cadre.runtime.journaling import log_entry
from cadre.settings import read_settings
from cadre.telemetry.logs import AGENT_AT_WORK, HANDLED_SUBJECT, JsonLines, TextLines
from cadre.telemetry.tracing.ids import agent_span, call_span, root_span, trace_id
from unit.journal_entries import accepted, entry

TOPOLOGY = Topology(2)
LINES = JsonLines("boss", "boss-1")


def line(message: str, *arguments: object, about: str | None = None, exc: Any = None) -> dict[str, Any]:
    token = HANDLED_SUBJECT.set(about)
    try:
        record = logging.LogRecord("cadre.agent", logging.WARNING, __file__, 1, message, arguments, exc)
        text = LINES.format(record)
    finally:
        HANDLED_SUBJECT.reset(token)
    assert "\n" not in text
    found: dict[str, Any] = json.loads(text)
    return found


def test_what_a_line_says() -> None:
    found = line("%s is\nlate", "it")
    assert found.pop("time").endswith("+00:00")
    assert found == {
        "level": "WARNING",
        "logger": "cadre.agent",
        "message": "it is\nlate",
        "service": "boss",
        "instance": "boss-1",
    }


@pytest.mark.parametrize(
    ("subject", "place"),
    [
        (TOPOLOGY.inbox("boss", "gateway", "r1", "r1"), {"run": "r1", "span_id": root_span("r1")}),
        (
            TOPOLOGY.inbox("kid", "boss", "r1", "r1_1_0"),
            {"run": "r1_1_0", "span_id": agent_span("r1_1_0"), "service": "kid"},
        ),
        (
            TOPOLOGY.call("add", "boss", "r1", "r1_2_0"),
            {"run": "r1", "call": "r1_2_0", "span_id": call_span("r1_2_0")},
        ),
        (TOPOLOGY.code("default", "r1", "r1"), {"run": "r1", "span_id": root_span("r1")}),
        (TOPOLOGY.journal("r1", "r1_1_0"), {"run": "r1_1_0", "span_id": agent_span("r1_1_0")}),
    ],
)
def test_where_a_line_belongs(subject: str, place: dict[str, str]) -> None:
    found = line("hm", about=subject)
    assert {"tree": "r1", "trace_id": trace_id("r1"), **place}.items() <= found.items()


def test_a_line_is_of_the_agent_whose_work_the_task_does() -> None:
    token = AGENT_AT_WORK.set("kid")
    try:
        assert line("hm")["service"] == "kid"
    finally:
        AGENT_AT_WORK.reset(token)
    assert line("hm")["service"] == "boss"


def test_a_line_for_people_ends_in_the_trace_unless_it_names_it() -> None:
    lines = TextLines("%(message)s")
    named = f"r1 ends, trace {trace_id('r1')}"

    def formatted(message: str) -> str:
        return lines.format(logging.LogRecord("cadre.agent", logging.INFO, __file__, 1, message, (), None))

    assert formatted("late") == "late"
    token = HANDLED_SUBJECT.set(TOPOLOGY.inbox("boss", "gateway", "r1", "r1"))
    try:
        assert formatted("late") == f"late [trace {trace_id('r1')}]"
        assert formatted(named) == named
    finally:
        HANDLED_SUBJECT.reset(token)


def test_the_course_of_a_run_is_told_with_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    run = "r1_1_0"
    events = (accepted(run, "r1"), ev.MessageReceived(text="Hi"), ev.RunFinished(state="success"))
    with caplog.at_level(logging.INFO, "cadre.run"):
        for n, event in enumerate(events, 1):
            log_entry(entry(run, n, 1.0, event))
    trace = trace_id("r1")
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        f"run {run} of boss begins, trace {trace}",
        f"run {run} of boss ends: success, trace {trace}",
    ]
    found = json.loads(LINES.format(caplog.records[0]))
    assert (found["run"], found["trace_id"], found["span_id"]) == (run, trace, agent_span(run))


def test_the_fate_of_a_tree_is_no_run() -> None:
    assert "run" not in line("hm", about=TOPOLOGY.lifecycle("r1"))


def test_an_exception_is_a_field() -> None:
    try:
        raise ValueError("no good")
    except ValueError as error:
        found = line("failed", exc=(ValueError, error, error.__traceback__))
    assert (found["exception"]["type"], found["exception"]["message"]) == ("ValueError", "no good")
    assert found["exception"]["stack"][0].endswith("test_an_exception_is_a_field")


def test_the_form_is_one_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_settings().log_format == "text"
    monkeypatch.setenv("CADRE_LOG_FORMAT", "xml")
    with pytest.raises(SettingError, match="CADRE_LOG_FORMAT=xml"):
        read_settings()

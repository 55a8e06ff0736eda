"""Lines of a log as objects: what each says, and of which run."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
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


PRINTING = """
import sys, threading, warnings
from cadre.telemetry.logs import configure_logging, log_all_output
configure_logging("boss", "boss-1", "INFO", "json")
log_all_output()
print("said on stdout")
print("on", "stderr", file=sys.stderr)
warnings.warn("deprecated")
thread = threading.Thread(target=lambda: 1 / 0, name="worker")
thread.start()
thread.join()
sys.stderr.write("begun and never ended")
leaving = threading.Thread(target=lambda: print("left by a thread", end=""))
leaving.start()
leaving.join()
for n in range(70):
    print("." * 1000, end="")
import ctypes
ctypes.CDLL(None).puts(b"said by C")
ctypes.CDLL(None).fflush(None)
configure_logging("boss", "boss-1", "INFO", "json")
raise ValueError("the last word")
"""


def test_every_line_of_a_process_is_an_object_the_last_one_included() -> None:
    ended = subprocess.run([sys.executable, "-c", PRINTING], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    lines = [json.loads(one) for one in (ended.stdout + ended.stderr).splitlines()]
    said = [(one["logger"], one["message"]) for one in lines]
    assert ("stdout", "said on stdout") in said
    assert any("deprecated" in message for logger, message in said if logger == "py.warnings")
    assert next(one["message"] for one in lines if one["logger"] == "stderr") == "on stderr"
    messages = {one["message"] for one in lines}
    assert {"begun and never ended", "left by a thread", "said by C"} <= messages
    assert max(len(one) for one in messages) > 65_536
    thrown = [one["exception"]["type"] for one in lines if one["level"] == "CRITICAL"]
    assert thrown == ["ZeroDivisionError", "ValueError"]


@pytest.mark.parametrize("wrong", ["CADRE_PORT", "CADRE_LOG_LEVEL"])
@pytest.mark.parametrize("service", ["tracer", "agent", "tools", "gateway", "memory", "sandbox", "operator"])
def test_a_service_that_cannot_start_says_so_in_an_object(service: str, wrong: str, tmp_path: Path) -> None:
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("CADRE_", "OTEL_"))},
        "CADRE_LOG_FORMAT": "json",
        wrong: "none",
    }
    given = {"agent": ["none.yaml"], "tools": ["none.py"]}.get(service, [])
    ended = subprocess.run(
        [sys.executable, "-m", "cadre.cli.main", service, *given],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=environment,
    )
    assert ended.returncode != 0
    lines = [json.loads(one) for one in ended.stderr.splitlines()]
    assert lines
    assert {one["service"] for one in lines} == {service}


def test_a_line_about_a_call_is_of_its_tool() -> None:
    assert line("hm", about=TOPOLOGY.call("add", "boss", "r1", "r1_2_0"))["service"] == "add"

"""The log of a process: lines for people, or JSON with the run and the trace that a line is about."""

import json
import logging
import sys
import traceback
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from cadre.protocol.rollout import slot_of
from cadre.protocol.topology import tree_of
from cadre.telemetry.tracing.ids import agent_span, call_span, root_span, trace_id

TEXT_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

HANDLED_SUBJECT: ContextVar[str | None] = ContextVar("handled", default=None)
"""The subject of the record that the current task handles."""

AGENT_AT_WORK: ContextVar[str | None] = ContextVar("agent at work", default=None)
"""The agent for which the current task works, where it handles no record: a process may host several."""

_CALLS = ("call", "effect")
_INBOX = "in"


def configure_logging(service: str, instance: str, level: str, form: str) -> None:
    """Sends everything that is logged to stderr, in the form `text` or `json`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(service, instance) if form == "json" else TextLines(TEXT_FORMAT))
    logging.basicConfig(level=level, handlers=[handler])
    # It logs the address of each request, and with it any key or password in there.
    logging.getLogger("httpx2").setLevel(logging.WARNING)


class TextLines(logging.Formatter):
    """Formats a log record as a line for people; one about a run's work ends in the id of the run's trace."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line without the lines of an exception, which follow it."""
        line = super().formatMessage(record)
        trace = _trace_fields(HANDLED_SUBJECT.get()).get("trace_id", "")
        return line if trace in line else f"{line} [trace {trace}]"


class JsonLines(logging.Formatter):
    """Formats each log record as one JSON object on one line."""

    def __init__(self, service: str, instance: str) -> None:
        super().__init__()
        self._service, self._instance = service, instance

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "service": AGENT_AT_WORK.get() or self._service,
            "instance": self._instance,
            **_trace_fields(HANDLED_SUBJECT.get()),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            kind, error, trace = record.exc_info
            line["exception"] = {
                "type": kind.__qualname__,
                "message": str(error),
                "stack": [f"{at.filename}:{at.lineno} {at.name}" for at in traceback.extract_tb(trace)],
            }
        return json.dumps(line, ensure_ascii=False, default=str)


def _trace_fields(subject: str | None) -> dict[str, str]:
    """The fields that name the run or call of a message subject, and its span in the trace."""
    if subject is None:
        return {}
    # <prefix>.<kind>.<shard>.….<tree>.<run or call>
    parts = subject.split(".")
    if len(parts) < 5 or parts[-2] == "_lifecycle":
        return {}
    kind, tree, leaf = parts[1], parts[-2], parts[-1]
    if tree_of(leaf) != tree:
        return {"tree": tree, "trace_id": trace_id(tree)}
    if kind in _CALLS:
        about = {"run": leaf.rsplit("_", 2)[0], "call": leaf, "span_id": call_span(leaf)}
        return {"tree": tree, "trace_id": trace_id(tree)} | about
    # The line is about the agent in whose queue the record lay.
    host = {"service": slot_of(parts[3])[0]} if kind == _INBOX else {}
    return host | fields_of_run(tree, leaf)


def fields_of_run(tree: str, run: str) -> dict[str, str]:
    """The fields of a line about a run: it is found by them, and by them its span in the trace."""
    span = root_span(tree) if run == tree else agent_span(run)
    return {"tree": tree, "trace_id": trace_id(tree), "run": run, "span_id": span}

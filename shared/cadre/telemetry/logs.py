"""The log of a process: lines for people, or JSON with the run and the trace that a line is about."""

import io
import json
import logging
import sys
import threading
import traceback
from contextvars import ContextVar
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, TextIO

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
    """Send everything that is logged to stderr, in the form `text` or `json`. With `json`, all else that the process
    writes there comes as objects as well: warnings, uncaught exceptions, what libraries print."""
    is_json = form == "json"
    stream = sys.__stderr__ if is_json and isinstance(sys.stderr, LoggedStream) else sys.stderr
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines(service, instance) if is_json else TextLines(TEXT_FORMAT))
    logging.basicConfig(level=level, handlers=[handler], force=is_json)
    if is_json and stream is not None:
        sys.stderr = LoggedStream("stderr", logging.ERROR, stream)
        logging.captureWarnings(True)
        sys.excepthook = _log_uncaught
        threading.excepthook = _log_uncaught_in_thread
    # It logs the address of each request, and with it any key or password in there.
    logging.getLogger("httpx2").setLevel(logging.WARNING)


def log_stdout_too() -> None:
    """Log what the process prints, where its log is JSON: a service gives no answers on stdout."""
    if isinstance(sys.stderr, LoggedStream) and sys.__stdout__ is not None:
        sys.stdout = LoggedStream("stdout", logging.INFO, sys.__stdout__)


def _log_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None, where: str = "the process"
) -> None:
    logging.getLogger("cadre.service").critical("%s ends with %s", where, kind.__name__, exc_info=(kind, error, trace))


def _log_uncaught_in_thread(hooked: threading.ExceptHookArgs) -> None:
    if hooked.exc_value is not None and hooked.exc_type is not SystemExit:
        where = f"thread {hooked.thread.name}" if hooked.thread is not None else "a thread"
        _log_uncaught(hooked.exc_type, hooked.exc_value, hooked.exc_traceback, where)


class LoggedStream(io.TextIOBase):
    """A text stream whose lines are logged: for code that prints.

    Args:
        name: the logger.
        real: the stream that it stands for, whose file descriptor it has.
    """

    def __init__(self, name: str, level: int, real: TextIO) -> None:
        self._log, self._level, self._real = logging.getLogger(name), level, real
        self._begun = threading.local()

    def write(self, text: str) -> int:
        """Log the lines that are whole now; keep the rest, by thread."""
        *lines, rest = (getattr(self._begun, "text", "") + text).split("\n")
        self._begun.text = rest
        for line in lines:
            self._say(line)
        return len(text)

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return self._real.fileno()

    def flush(self) -> None:
        """Log a line that was begun, if it is the last: as the interpreter ends."""
        if not threading.main_thread().is_alive() or sys.is_finalizing():
            self._say(getattr(self._begun, "text", ""))
            self._begun.text = ""

    def _say(self, line: str) -> None:
        if line.strip():
            self._log.log(self._level, "%s", line)


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
        # The line is about the tool whose call it is, as the call's span is.
        about = {"run": leaf.rsplit("_", 2)[0], "call": leaf, "span_id": call_span(leaf), "service": parts[3]}
        return {"tree": tree, "trace_id": trace_id(tree)} | about
    # The line is about the agent in whose queue the record lay.
    host = {"service": slot_of(parts[3])[0]} if kind == _INBOX else {}
    return host | fields_of_run(tree, leaf)


def fields_of_run(tree: str, run: str) -> dict[str, str]:
    """The fields of a line about a run: it is found by them, and by them its span in the trace."""
    span = root_span(tree) if run == tree else agent_span(run)
    return {"tree": tree, "trace_id": trace_id(tree), "run": run, "span_id": span}

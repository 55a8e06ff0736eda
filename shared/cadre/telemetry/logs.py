"""The log of a process: lines for people, or JSON with the run and the trace that a line is about."""

from __future__ import annotations

import atexit
import contextlib
import io
import logging
import os
import subprocess
import sys
import threading
import traceback
from contextvars import ContextVar
from types import TracebackType
from typing import Any, NamedTuple, TextIO

from cadre.protocol.rollout import slot_of
from cadre.protocol.topology import tree_of
from cadre.telemetry import raw_output
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
    writes there in Python comes as objects as well: warnings, uncaught exceptions, what libraries print."""
    is_json = form == "json"
    stream = sys.__stderr__ if is_json and isinstance(sys.stderr, LoggedStream) else sys.stderr
    if _kept:
        stream = _kept[0].log
    handler: logging.StreamHandler[Any]
    if is_json:
        handler = _LineHandler(stream, JsonLines(service, instance))
    else:
        handler = logging.StreamHandler(stream)
        handler.setFormatter(TextLines(TEXT_FORMAT))
    logging.basicConfig(level=level, handlers=[handler], force=is_json)
    if is_json and stream is not None:
        sys.stderr = LoggedStream("stderr", logging.ERROR, sys.__stderr__ or stream)
        logging.captureWarnings(True)
        sys.excepthook = _log_uncaught
        threading.excepthook = _log_uncaught_in_thread
    # It logs the address of each request, and with it any key or password in there.
    logging.getLogger("httpx2").setLevel(logging.WARNING)


def log_all_output() -> None:
    """Log what the process prints too, where its log is JSON: a service gives no answers on stdout. What it and its
    children write past Python's streams goes through a process that ends with the last of them."""
    handler = next((one for one in logging.getLogger().handlers if isinstance(one, _LineHandler)), None)
    if _kept or handler is None or sys.__stdout__ is None or sys.__stderr__ is None:
        return
    sys.stdout = LoggedStream("stdout", logging.INFO, sys.__stdout__)
    _kept.append(_keep_output(handler.lines.service, handler.lines.instance))
    handler.setStream(_kept[0].log)
    atexit.register(_let_output_go, os.getpid())


def hang_output() -> int | None:
    """Return the descriptor for the traceback of a process that hangs; None where it is stderr."""
    return _kept[0].hanging if _kept else None


class _KeptOutput(NamedTuple):
    """The destination of this process's output while its log is JSON."""

    log: TextIO
    """The stderr that the process was given."""
    hanging: int
    keeper: subprocess.Popen[bytes]


_kept: list[_KeptOutput] = []
"""One, once `log_all_output` has found a log in JSON."""

_LAST_LINES_SECONDS = 1.0


def _keep_output(service: str, instance: str) -> _KeptOutput:
    log = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace", buffering=1)
    printed, errors, hanging = os.pipe(), os.pipe(), os.pipe()
    read = [pipe[0] for pipe in (printed, errors, hanging)]
    keeper = subprocess.Popen(
        [sys.executable, "-I", "-S", raw_output.__file__, service, instance, *map(str, read)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=log,
        pass_fds=read,
        start_new_session=True,  # what ends this process's group leaves it the last lines
    )
    for descriptor, pipe in ((1, printed), (2, errors)):
        os.dup2(pipe[1], descriptor)
        os.close(pipe[1])
    for descriptor in read:
        os.close(descriptor)
    return _KeptOutput(log, hanging[1], keeper)


def _let_output_go(process: int) -> None:
    """Wait until what was printed is written: in a container all processes end with the first."""
    if os.getpid() != process:
        return
    kept = _kept[0]
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            stream.flush()
    for descriptor in (1, 2):
        os.dup2(kept.log.fileno(), descriptor)
    os.close(kept.hanging)
    with contextlib.suppress(subprocess.TimeoutExpired):  # a child of this process goes on
        kept.keeper.wait(_LAST_LINES_SECONDS)


class _LineHandler(logging.StreamHandler[Any]):
    """Writes to a stream that other processes write to as well."""

    def __init__(self, stream: TextIO | None, lines: JsonLines) -> None:
        super().__init__(stream)
        self.lines = lines
        self.setFormatter(lines)

    def emit(self, record: logging.LogRecord) -> None:
        with raw_output.sole_writer(self.stream):
            super().emit(record)


def _log_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None, where: str = "the process"
) -> None:
    logging.getLogger("cadre.service").critical("%s ends with %s", where, kind.__name__, exc_info=(kind, error, trace))


def _log_uncaught_in_thread(hooked: threading.ExceptHookArgs) -> None:
    if hooked.exc_value is not None and hooked.exc_type is not SystemExit:
        where = f"thread {hooked.thread.name}" if hooked.thread is not None else "a thread"
        _log_uncaught(hooked.exc_type, hooked.exc_value, hooked.exc_traceback, where)


_MOST_BEGUN = 1 << 16
"""Characters of a line after which it is logged without its end."""


class LoggedStream(io.TextIOBase):
    """A text stream whose lines are logged: for code that prints.

    Args:
        name: the logger.
        real: the stream that it stands for, whose file descriptor it has.
    """

    def __init__(self, name: str, level: int, real: TextIO) -> None:
        self._log, self._level, self._real = logging.getLogger(name), level, real
        self._begun: dict[int, str] = {}
        """By thread."""

    @property
    def buffer(self) -> Any:
        """The bytes below, for code that writes some."""
        return self._real.buffer

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._real.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self._real.errors

    def reconfigure(self, **options: Any) -> None:
        """Change nothing: lines are logged, whatever form is asked for."""

    def write(self, text: str) -> int:
        """Log the lines that are whole now; keep the rest, by thread."""
        thread = threading.get_ident()
        *lines, rest = (self._begun.pop(thread, "") + text).split("\n")
        if len(rest) > _MOST_BEGUN:
            lines, rest = [*lines, rest], ""
        if rest:
            self._begun[thread] = rest
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
        """Log the lines that were begun, if they are the last: as the interpreter ends."""
        if not threading.main_thread().is_alive() or sys.is_finalizing():
            while self._begun:
                self._say(self._begun.popitem()[1])

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
        self.service, self.instance = service, instance

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": raw_output.time_of(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "service": AGENT_AT_WORK.get() or self.service,
            "instance": self.instance,
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
        return raw_output.line_of(line)


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

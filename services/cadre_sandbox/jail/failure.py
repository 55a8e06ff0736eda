"""Describe a failure in a block as a model can use it: kind, message, the block's line."""

from __future__ import annotations

import difflib
import itertools
from dataclasses import dataclass
from types import TracebackType

from cadre_sandbox.jail.capture import cut
from cadre_sandbox.jail.refusal import NotAllowed

_MAX_MESSAGE_CHARS = 4_000

_MAX_KEYS = 1_000
"""Keys of one dict that are looked at for one like that which is missing."""

_MAX_VALUES = 100
"""Values of one dict or list that are looked into for the same, and of all together before no further one is."""


@dataclass(frozen=True, slots=True)
class CodeFailure:
    """An error of the code: its type, its message, and the line of the block."""

    error: str
    message: str
    line: int | None = None
    source: str | None = None


def describe(error: BaseException, filename: str, code: str) -> CodeFailure:
    """The failure that the error means for the block in `filename`. May run the error's own `__str__`."""
    kind = type(error).__name__
    line = _line(error, filename)
    lines = code.splitlines()
    source = lines[line - 1].strip() if line and line <= len(lines) else None
    notes = [note for note in getattr(error, "__notes__", ()) if isinstance(note, str)]
    message = "\n".join((_message(error), *notes))
    return CodeFailure(kind, cut(message, _MAX_MESSAGE_CHARS), line, source)


def _message(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return _syntax(error)
    if isinstance(error, SystemExit):
        return "exit() does not end the task: call final_answer(value)"
    if isinstance(error, MemoryError):
        return str(error) or "the code wanted more memory than it may have"
    if isinstance(error, KeyError) and error.args:
        return f"there is no key {error.args[0]!r}{_close_keys(error, error.args[0])}"
    return str(error)


def _close_keys(error: BaseException, key: object) -> str:
    """Keys that the model may have meant, of the dicts and tables that the failing function holds by a name."""
    frame, trace = None, error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename.startswith("<block "):
            frame = trace.tb_frame
        trace = trace.tb_next
    if frame is None or not isinstance(key, str):
        return ""
    known = {**frame.f_globals, **frame.f_locals}
    names = (*frame.f_code.co_names, *frame.f_code.co_varnames, *frame.f_code.co_freevars)
    keys: set[str] = set()
    # Breadth first, into the lists and dicts of JSON: a missing key is often that of a record in a list.
    values = [known[name] for name in names if name in known]
    for value in values:
        found = value if type(value) is dict else getattr(value, "columns", ())
        keys.update(one for one in list(found)[:_MAX_KEYS] if isinstance(one, str))
        if type(value) in (dict, list) and len(values) < _MAX_VALUES:
            inner = value.values() if type(value) is dict else value
            values.extend(itertools.islice(inner, _MAX_VALUES))
    close = difflib.get_close_matches(key, keys, n=3)
    return f"; there is {' and '.join(map(repr, close))}" if close else ""


def _syntax(error: SyntaxError) -> str:
    message = f"{error.msg} (line {error.lineno})"
    if error.text and error.offset:
        text = error.text.rstrip("\n")
        message += f"\n{text}\n{' ' * (error.offset - 1)}^"
    return message


def _line(error: BaseException, filename: str) -> int | None:
    if isinstance(error, NotAllowed) and error.line:
        return error.line
    if isinstance(error, SyntaxError) and error.filename == filename:
        return error.lineno
    found = None
    trace: TracebackType | None = error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == filename:
            found = trace.tb_lineno
        trace = trace.tb_next
    return found

"""Run one block of code, from its text to its outcome."""

from __future__ import annotations
import __future__

import ast
import difflib
import functools
import hashlib
import itertools
import mmap
import operator
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any

from cadre_sandbox.jail import clock, functions, guard
from cadre_sandbox.jail.functions import Conversation, DeferredCall, SandboxFunction, Tool, gather
from cadre_sandbox.jail.guard import NotAllowed
from cadre_sandbox.jail.snapshot import SnapshotUnreadable, keep_source
from cadre_sandbox.jail.state import InterpreterState, Stopped, cut
from cadre_sandbox.jail.values import NotAValue, from_value, to_value
from cadre_sandbox.wire.frames import Frame
from cadre_sandbox.wire.values import (
    MAX_BINARY_BYTES,
    MAX_JSON_SIZE,
    BinaryValue,
    dump,
    json_size,
    pack,
    unpack,
)

_SPARE_BYTES = 16 << 20
"""Bytes that must be free for a next block."""

_SAVING_SECONDS = 4.5
"""Seconds to save the variables in, however many the code has used; the outside grants half a second more."""

_DESCRIBING_SECONDS = 0.2
"""Seconds for the text of an error, however many the code has used."""

NAME = "run_script"
SKILL_PREFIX = "skill_"
"""With which the names of functions begin that read a skill."""


class FinalAnswer(BaseException):
    """Ends the block. It is no Exception, so that `except Exception` does not catch it."""


class Block:
    """A block and its outcome.

    `call` and `final_answer` are what the code's functions call: functions outlive the block that defined them, so
    these lead to whichever block is running.
    """

    def __init__(
        self,
        state: InterpreterState,
        frame: Frame,
        call: Callable[[Sequence[DeferredCall]], list[Any]],
        final_answer: Callable[..., None],
    ) -> None:
        self._state = state
        self._call_outside, self._answer_finally = call, final_answer
        self._number: int = frame.header["n"]
        self._order: dict[str, Any] = frame.header
        self._blobs = frame.blobs
        self._code: str = frame.header["code"].removeprefix("\ufeff")
        self._limits: dict[str, Any] = frame.header["limits"]
        self._conversation = Conversation(self, self._order["recorded"], self._blobs)
        self._final: tuple[dict[str, Any], list[bytes]] | None = None
        # Of the text: functions of other blocks, restored ones too, are distinguished by it.
        self._filename = f"<block {zlib.crc32(self._code.encode(errors='replace')):08x}>"

    def run(self) -> None:
        """Run the block and send its outcome, then its variables. Restores a snapshot first, if one was sent."""
        state = self._state
        state.printed.start(self._limits["print_chars"])
        self._expose()
        if self._order["restore"] and not self._restore():
            return
        # After what restoring may have imported and drawn.
        clock.seed(self._order["seed"])
        keep_source(self._filename, self._code)
        header, blobs = self._compute()
        self._send({**header, "logs": state.printed.text()}, blobs)
        self._save()

    def ask(self, header: dict[str, Any], blobs: Sequence[bytes]) -> Frame:
        """Send the outside a question, and return its answer. The stopwatch rests meanwhile."""
        self._state.stopwatch.rest()
        try:
            self._send({**header, "logs": self._state.printed.text()}, blobs)
            return self._state.channel.receive()
        finally:
            self._state.stopwatch.run()

    def _send(self, header: dict[str, Any], blobs: Sequence[bytes] = ()) -> None:
        self._state.channel.send({"n": self._number, **header}, blobs)

    def _expose(self) -> None:
        call = self._call_outside
        offered: dict[str, Any] = {
            one["name"]: Tool(one["name"], one["signature"], one["doc"], call) for one in self._order["functions"]
        }
        offered["gather"] = gather(call, lambda results: self._state.namespace.update(gathered=results))
        if self._order["final_answer"]:
            doc = "final_answer(value): ends the task with this value."
            offered[guard.FINAL] = SandboxFunction(guard.FINAL, doc, self._answer_finally)
        if any(name.startswith(SKILL_PREFIX) for name in offered):
            rules = guard.Rules(self._order["imports"], self._order["builtins"], ())
            offered.setdefault(NAME, script_runner(rules, self._state.builtins.names))
        functions.offered.clear()
        functions.offered.update(offered)
        errors = {kind.__name__: kind for kind in (functions.CallError, functions.GatherError)}
        self._state.builtins.start(self._order["imports"], self._order["builtins"], {**offered, **errors})

    def _restore(self) -> bool:
        try:
            self._state.snapshots.restore(self._blobs[0])
        except SnapshotUnreadable as error:
            self._send({"kind": "unreadable", "why": str(error)})
            return False
        self._send({"kind": "restored"})
        return True

    def _compute(self) -> tuple[dict[str, Any], list[bytes]]:
        """Return the header and blobs of the outcome. Any exception of the code ends here."""
        self._state.stopwatch.reset(self._limits["seconds"], self._limits["cpu_seconds"])
        try:
            return self._state.stopwatch.timed(self._execute_to_the_end)
        except BaseException as error:
            if isinstance(error, MemoryError):
                self._state.reserve = b""
            return self._ended_by(error)

    def _execute_to_the_end(self) -> tuple[dict[str, Any], list[bytes]]:
        try:
            return self._execute()
        finally:
            self._conversation.end()

    def _execute(self) -> tuple[dict[str, Any], list[bytes]]:
        namespace = self._state.namespace
        for name, packed in self._order["variables"].items():
            namespace[guard.RENAMED if name == guard.FINAL else name] = from_value(unpack(packed, self._blobs))
        offered = functions.offered.keys()
        rules = guard.Rules(self._order["imports"], self._order["builtins"], offered, namespace.keys())
        tree = guard.read(self._code, self._filename, rules)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        flags = _future_flags(tree)
        exec(compile(tree, self._filename, "exec", flags, dont_inherit=True), namespace)
        value = None
        if isinstance(last, ast.Expr):
            expression = ast.Expression(last.value)
            value = eval(compile(expression, self._filename, "eval", flags, dont_inherit=True), namespace)
        self._conversation.check_all_used()
        return self._final or self._finished(value, is_final=False)

    def call(self, calls: Sequence[DeferredCall]) -> list[Any]:
        """Make the calls, and return their results in order."""
        return self._conversation.call(calls)

    def final_answer(self, *answer: Any, **named: Any) -> None:
        """End the block with the one value given, from wherever it is called. Raises FinalAnswer, and TypeError for no
        value or several."""
        given = [*answer, *([named.pop("answer")] if "answer" in named else [])]
        if len(given) != 1 or named:
            found = "no value" if not given and not named else "other arguments"
            raise TypeError(f"final_answer(value) takes the answer as its one argument, and was given {found}")
        self._conversation.check_all_used()
        if not self._final:
            self._final = self._finished(given[0], is_final=True)
        raise FinalAnswer

    def _finished(self, value: Any, is_final: bool) -> tuple[dict[str, Any], list[bytes]]:
        """Return the header and blobs of an end. Converting objects to text happens here, within the code's time."""
        text = "" if value is None else cut(str(value), self._limits["output_chars"])
        try:
            output = to_value(value, "the answer")
            if (size := json_size(output)) > MAX_JSON_SIZE:
                _check_size(size)
                output = BinaryValue("json", dump(output))
            blobs: list[bytes] = []
            packed = pack(output, blobs)
            _check_size(sum(map(len, blobs)))
        except NotAValue:
            if is_final:
                raise
            # Nothing but its text is read of what a block that goes on comes to.
            packed, blobs = text, []
        return {"kind": "finished", "output": packed, "text": text, "final": is_final}, blobs

    def _ended_by(self, error: BaseException) -> tuple[dict[str, Any], list[bytes]]:
        if self._final and not self._conversation.diverged:
            return self._final
        if self._conversation.diverged:
            failure = CodeFailure("ReplayDiverged", self._conversation.diverged)
        elif isinstance(error, Stopped):
            failure = self._stopped(error)
        else:
            failure = self._described(error)
        error.__traceback__ = None
        return {"kind": "failed", **asdict(failure)}, []

    def _stopped(self, error: Stopped) -> CodeFailure:
        place = describe(error, self._filename, self._code)
        limit = self._limits["seconds" if error.kind == "TimeLimit" else "cpu_seconds"]
        message = (
            f"The code was stopped after {limit:g} s of computing (waiting for functions is not counted). "
            "Variables set until then are kept. Do less in one block, or find a faster way."
        )
        return CodeFailure(error.kind, message, place.line, place.source)

    def _described(self, error: BaseException) -> CodeFailure:
        """Return the failure for the model. The error's text comes from the code, and gets a little time."""
        self._state.stopwatch.reset(_DESCRIBING_SECONDS, _DESCRIBING_SECONDS)
        try:
            failure = self._state.stopwatch.timed(lambda: describe(error, self._filename, self._code))
        except BaseException as second:
            return CodeFailure(type(error).__name__, f"(its text raised {type(second).__name__})")
        if isinstance(error, NameError) and error.name:
            why = self._state.snapshots.explain(error.name)
            return CodeFailure(failure.error, failure.message + why, failure.line, failure.source)
        return failure

    def _save(self) -> None:
        """Send the variables; or that they are as before; or that they cannot be saved."""
        state = self._state
        state.stopwatch.extend(_SAVING_SECONDS)
        try:
            with clock.true_chance():
                data, notes = state.stopwatch.timed(lambda: state.snapshots.save(self._limits["snapshot_bytes"]))
        except BaseException as error:
            self._send({"kind": "unsaved", "why": type(error).__name__})
            return
        fit = _has_room()
        digest = hashlib.blake2b(data, digest_size=16).digest()
        if digest == state.last_digest:
            self._send({"kind": "unchanged", "notes": notes, "fit": fit})
        else:
            state.last_digest = digest
            self._send({"kind": "snapshot", "notes": notes, "fit": fit}, [data])


def _check_size(size: int) -> None:
    """Raise NotAValue for an answer of more bytes than may leave the interpreter."""
    if size > MAX_BINARY_BYTES:
        most = f"at most {MAX_BINARY_BYTES / 1e6:.0f} may be: answer with less"
        raise NotAValue(f"the answer is {size / 1e6:.0f} MB, {most}")


def _future_flags(tree: ast.Module) -> int:
    """Return what the block's `from __future__` statements mean for the compiler."""
    names = (
        alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == "__future__"
        for alias in node.names
    )
    features = (getattr(__future__, name, None) for name in names)
    return functools.reduce(operator.or_, (one.compiler_flag for one in features if one is not None), 0)


def _has_room() -> bool:
    """Return whether the interpreter can be used again. What fills its memory may be no variable, but threads that
    wait."""
    try:
        mmap.mmap(-1, _SPARE_BYTES).close()
    except OSError:
        return False
    return True


class ScriptFailed(Exception):
    """A script has ended with a status that is no success."""


def script_runner(rules: guard.Rules, builtins: dict[str, Any]) -> SandboxFunction:
    """Return the function `run_script` of the code."""

    def run(script: Any, *arguments: Any) -> None:
        text = script if isinstance(script, str) else script.text()
        filename = f"<script {zlib.crc32(text.encode(errors='replace')):08x}>"
        keep_source(filename, text)
        program = compile(guard.read(text, filename, rules), filename, "exec", dont_inherit=True)
        namespace = {"__name__": "__main__", "__file__": filename, "__builtins__": builtins}
        before, sys.argv = sys.argv, [filename, *map(str, arguments)]
        try:
            exec(program, namespace)
        except SystemExit as end:
            if end.code not in (None, 0):
                raise ScriptFailed(f"the script ended with {end.code!r}") from None
        finally:
            sys.argv = before

    doc = (
        f"{NAME}(script, *arguments): runs the text of a Python script as a program with these arguments. What it"
        " prints is printed here."
    )
    return SandboxFunction(NAME, doc, run)


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
    """Return the failure that the error means for the block in `filename`. May run the error's own `__str__`."""
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
    """Return the keys that the model may have meant, of the dicts and tables that the failing function holds by a
    name."""
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

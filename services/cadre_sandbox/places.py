"""Where a warm interpreter stands, and whether a CodeCall asks for just what comes next there."""

from __future__ import annotations

from cadre.messages import CodeCall, CodeFinished, CodeYielded

Answer = CodeYielded | CodeFinished


def is_same(call: CodeCall, served: CodeCall) -> bool:
    """The call was served before: a second delivery, or a second publication."""
    return _head(call) == _head(served) and call.exchanges == served.exchanges


def is_past(call: CodeCall, served: CodeCall) -> bool:
    """The run has had its answer: it has asked since for what comes behind it."""
    done = len(call.exchanges)
    return (
        _head(call) == _head(served)
        and done < len(served.exchanges)
        and call.exchanges == served.exchanges[:done]
    )


def resumes(call: CodeCall, served: CodeCall, answer: Answer) -> bool:
    """The block waits in the interpreter for exactly these replies."""
    if not isinstance(answer, CodeYielded) or _head(call) != _head(served) or not call.exchanges:
        return False
    *before, last = call.exchanges
    return before == served.exchanges and last.calls == answer.calls and last.clock == answer.clock


def follows(call: CodeCall, answer: Answer) -> bool:
    """The interpreter is between blocks, and has the variables that the call asks for."""
    return isinstance(answer, CodeFinished) and call.snapshot == answer.snapshot


def _head(call: CodeCall) -> tuple[str, str, str | None]:
    return call.block, call.code, call.snapshot

"""What events make of a block of code: at work in a sandbox, waiting for its calls, ended."""

from __future__ import annotations

from cadre.engine.context.observation import clip
from cadre.journal import events as ev
from cadre.journal.run import CodeInWork, Run
from cadre.protocol.code import CodeExchange, CodeReply

_KEPT = 200
"""Characters of a finished call's observation: its model has read what the code made of it."""


def start_code(run: Run, event: ev.BlockStarted, n: int, at: float) -> None:
    if run.current is not None:
        run.current.code = event.code
    run.code = CodeInWork(block=event.block, code=event.code, since=n, at=at)


def await_calls(run: Run, event: ev.BlockYielded) -> None:
    """The calls themselves follow as events of their own."""
    if run.code is not None:
        run.code.since = 0
        run.code.asked, run.code.clock = event.calls, event.clock
        run.code.calls, run.code.replies = [], {}


def note_call(run: Run, call: str) -> None:
    """A call has been opened or refused; if the block waits for calls, it is the next of them."""
    code = run.code
    if code is not None and len(code.calls) < len(code.asked):
        code.calls.append(call)


def note_reply(run: Run, call: str, reply: CodeReply, n: int, at: float) -> None:
    """With its last reply the exchange is complete, and the sandbox owes what comes next."""
    code = run.code
    if code is None or call not in code.calls:
        return
    code.replies[call] = reply
    if len(code.replies) < len(code.asked):
        return
    replies = [code.replies[one] for one in code.calls]
    code.exchanges.append(CodeExchange(calls=code.asked, replies=replies, clock=code.clock))
    code.asked, code.clock, code.calls, code.replies = [], [], [], {}
    code.since, code.at = n, at


def end_code(run: Run, event: ev.BlockFinished) -> None:
    run.code = None
    # None: they cannot be restored, and the next block would fail in the same way.
    run.snapshot = event.snapshot
    if run.current is None:
        return
    run.current.snapshot = event.snapshot
    logs = event.logs.rstrip("\n")
    told = [f"Execution logs:\n{logs}"] if logs else []
    told += event.notes
    if event.error is None:
        told.append(f"Last output from code snippet:\n{event.text or None}")
    run.current.observation = clip("\n".join(told), run.spec.limits.observation_chars if run.spec else None)
    for call in run.current.calls:
        if call.observation is not None:
            call.observation = clip(call.observation, _KEPT)

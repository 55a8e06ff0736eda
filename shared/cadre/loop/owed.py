"""What a run in this state still owes the world. A function of the state alone: asked again after a
crash it says the same, and everything it names may be paid twice.
"""

from __future__ import annotations

import msgspec

from cadre.engine.recall import origin_of, question
from cadre.engine.remember import to_remember
from cadre.engine.timers import Wait, waits
from cadre.journal.run import CallState, Phase, Purpose, Revoked, Run
from cadre.kinds.tool_calling.arguments import with_values
from cadre.prompting.code_names import named_in_code
from cadre.prompting.tool_text import docstring_of, signature_of
from cadre.protocol.cards import AgentCard
from cadre.protocol.code import CodeFunction
from cadre.protocol.memory import MEMORY_TOOLS
from cadre.protocol.messages import (
    Cancel,
    CodeCall,
    ErrorInfo,
    ReplyTo,
    Report,
    Task,
    TimerFired,
    ToolCall,
    ToolResult,
)
from cadre.protocol.topology import cancel_id, code_call_id, report_id, result_id, task_id, timer_id
from cadre.spec.agent import BASE_IMPORTS


class CallModel(msgspec.Struct, frozen=True):
    """Ask the model; the call belongs to the inbox record `cause`."""

    purpose: Purpose
    step: int
    attempt: int
    cause: str


class SetTimer(msgspec.Struct, frozen=True):
    """Have `timer` delivered to this run at `due`; the wait began at `began` (Unix seconds)."""

    timer: TimerFired
    due: float
    began: float
    cause: str | None
    """The inbox record whose worker sees to the wait, which may be short; None for the run's own waits."""


class Revoke(msgspec.Struct, frozen=True):
    """Nobody awaits this tool call any more: it is not to be begun, and to be stopped if it has been."""

    result: ToolResult
    """What its executor finds in place of an empty effect."""


class Send(msgspec.Struct, frozen=True):
    """Send a message; `to` is the agent it goes to where the message does not say."""

    message: Task | ToolCall | CodeCall | Report | Cancel
    to: str | None = None
    with_summary: bool = False
    """Of a Report: its text tells how the work was done as well."""


Command = CallModel | SetTimer | Send | Revoke


def owed(run: Run, since: int = 0) -> list[Command]:
    """Everything that the run owes; with `since`, only what its entries from that one on made owed."""
    commands = _in_phase(run, since)
    if run.phase not in (Phase.NEW, Phase.DONE) and (
        run.deadline is not None or run.current is not None or run.recalling is not None
    ):
        commands += [_set(run, wait) for wait in waits(run) if wait.since >= since]
    if run.spec is not None and run.spec.memory.remember != "nothing":
        commands += [Send(call) for call in to_remember(run, since)]
    if run.revoked:
        commands += [_revoke(run, call) for call in run.revoked if call.since >= since]
    return commands


def _in_phase(run: Run, since: int) -> list[Command]:
    match run.phase:
        case Phase.NEW:
            return []
        case Phase.THINKING:
            model = run.model
            assert model is not None
            if model.since < since:
                return []
            return [CallModel(model.purpose, model.step, model.attempt, model.cause)]
        case Phase.WAITING:
            return _timer(run, since)
        case Phase.ACTING:
            if run.recalling is not None and run.spec is not None:
                asked = run.recalling
                return [Send(question(run, asked, run.spec))] if asked.since >= since else []
            calls: list[Command] = [
                _for_call(run, call) for call in run.open_calls() if call.opened and call.opened >= since
            ]
            return [*calls, *_code(run, since)]
        case Phase.DONE:
            return _at_the_end(run, since)


def _timer(run: Run, since: int) -> list[Command]:
    wait = run.deferral
    assert wait is not None
    if wait.since < since:
        return []
    timer = TimerFired(
        id=timer_id(run.id, wait.timer), tree=run.tree, run=run.id, name=wait.timer, at=wait.until
    )
    return [SetTimer(timer, wait.until, wait.at, wait.cause)]


def _set(run: Run, wait: Wait) -> SetTimer:
    timer = TimerFired(id=timer_id(run.id, wait.name), tree=run.tree, run=run.id, name=wait.name, at=wait.due)
    return SetTimer(timer, wait.due, wait.due, None)


def _revoke(run: Run, call: Revoked) -> Command:
    if call.kind == "member":
        cancel = Cancel(
            id=cancel_id(call.call),
            tree=run.tree,
            run=call.call,
            at=call.at,
            reason=call.reason,
            sender=run.agent,
        )
        return Send(cancel, to=call.name)
    return Revoke(
        ToolResult(
            id=result_id(call.call),
            tree=run.tree,
            run=run.id,
            at=call.at,
            call=call.call,
            tool=call.name,
            error=ErrorInfo("Cancelled", f"not begun: {call.reason}"),
        )
    )


def _code(run: Run, since: int) -> list[Command]:
    code, task, spec = run.code, run.task, run.spec
    if code is None or not code.since or code.since < since or task is None or spec is None:
        return []
    return [
        Send(
            CodeCall(
                id=code_call_id(code.block, len(code.exchanges)),
                tree=run.tree,
                run=run.id,
                at=code.at,
                agent=run.agent,
                pool=spec.code.pool,
                block=code.block,
                code=code.code,
                exchanges=code.exchanges,
                snapshot=run.snapshot,
                # Later blocks find them in the snapshot, as the code has left them, unless it was lost.
                variables=task.additional_args if run.snapshot in (None, run.inherited) else {},
                functions=_functions(run),
                authorized_imports=[*BASE_IMPORTS, *spec.code.imports],
                limits=spec.code.limits,
                deadline=run.deadline,
                trace=task.trace,
            )
        )
    ]


def _functions(run: Run) -> list[CodeFunction]:
    """Tools and team members as code calls them."""
    return [
        CodeFunction(
            name=name,
            signature=signature_of(card),
            kind="member" if isinstance(card, AgentCard) else "tool",
            doc=docstring_of(card),
        )
        for name, card in named_in_code([*run.tools.values(), *run.members.values()]).items()
    ]


def _for_call(run: Run, call: CallState) -> Send:
    task = run.task
    assert task is not None
    # What is checked is the answer as it is, values of variables included.
    arguments = call.arguments if call.check else with_values(run, call.arguments)
    if call.kind == "tool":
        return Send(
            ToolCall(
                id=call.id,
                tree=run.tree,
                run=run.id,
                at=call.opened_at,
                agent=run.agent,
                tool=call.name,
                arguments=arguments,
                deadline=min((due for due in (call.due, run.deadline) if due is not None), default=None),
                output_chars=_read_at_most(run),
                origin=origin_of(run, run.spec) if call.name in MEMORY_TOOLS and run.spec else None,
                trace=task.trace,
            )
        )
    return Send(
        Task(
            id=task_id(call.id),
            tree=run.tree,
            run=call.id,
            at=call.opened_at,
            agent=call.name,
            task=arguments["task"],
            additional_args=with_values(run, arguments["additional_args"]),
            reply_to=ReplyTo(agent=run.agent, run=run.id),
            path=[*task.path, run.agent],
            deadline=run.deadline,
            budget=call.budget,
            origin=task.origin,
            trace=task.trace,
        )
    )


def _read_at_most(run: Run) -> int | None:
    """What a model reads itself need not travel beyond its limit; code gets outputs whole."""
    if run.spec is None or run.spec.kind == "code":
        return None
    return run.spec.limits.observation_chars


def _at_the_end(run: Run, since: int) -> list[Command]:
    result, task = run.result, run.task
    assert result is not None
    assert task is not None
    if result.since < since:
        return []
    commands: list[Command] = []
    if task.reply_to is not None:
        report = Report(
            id=report_id(run.id),
            tree=run.tree,
            run=task.reply_to.run,
            at=result.at,
            child=run.id,
            agent=run.agent,
            state=result.state,
            output=result.output,
            error=result.error,
            usage=run.usage,
            steps=run.step,
        )
        summarised = run.spec is not None and run.spec.provide_run_summary
        commands.append(Send(report, to=task.reply_to.agent, with_summary=summarised))
    return commands

"""Compute what a run in this state still owes the world. A function of the state alone: asked again after a
crash it says the same, and everything it names may be paid twice.
"""

from typing import Any

from cadre.engine.commands import CallModel, Command, Revoke, Send, SetTimer
from cadre.engine.kind import Kind, kind_of
from cadre.engine.policies.passing import standing_of
from cadre.engine.recall import origin_of, question, to_remember
from cadre.engine.timers import PendingWait, fired, waits
from cadre.journal.run import CallState, Phase, Revoked, Run
from cadre.protocol.memory import MEMORY_TOOLS
from cadre.protocol.messages import (
    Cancel,
    ErrorInfo,
    ReplyTo,
    Report,
    Task,
    ToolCall,
    ToolResult,
    round_id,
)
from cadre.protocol.topology import cancel_id, report_id, result_id, task_id
from cadre.spec.member_call import ADDITIONAL, TASK, inputs_of


def owed(run: Run, since: int = 0) -> list[Command]:
    """Everything that the run owes; with `since`, only what its entries from that one on made owed."""
    commands = _in_phase(run, since)
    if run.phase not in (Phase.NEW, Phase.DONE) and (
        run.deadline is not None or run.current is not None or run.recalling is not None or run.waits
    ):
        commands += [_set(run, wait) for wait in waits(run) if wait.since >= since]
    if run.spec is not None and run.spec.memory.remember != "nothing":
        commands += [Send(call) for call in to_remember(run, since)]
    if run.revoked:
        commands += [_revoke(run, call) for call in run.revoked if call.since >= since]
    return commands


def is_at_work(run: Run) -> bool:
    """Return whether any part of the deployment works for the run now: its model, an executor, a member, a sandbox."""
    if run.model is not None or run.open_calls():
        return True
    return run.phase is Phase.ACTING and run.spec is not None and bool(kind_of(run).owed(run, 0))


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
            kind = kind_of(run)
            calls: list[Command] = [
                _for_call(run, kind, call)
                for call in run.open_calls()
                if call.kind != "question" and call.opened and call.opened >= since
            ]
            return [*calls, *kind.owed(run, since)]
        case Phase.DONE:
            return _at_the_end(run, since)


def _timer(run: Run, since: int) -> list[Command]:
    wait = run.deferral
    assert wait is not None
    if wait.since < since:
        return []
    return [SetTimer(fired(run, wait.timer, wait.until), wait.until, wait.at, wait.cause)]


def _set(run: Run, wait: PendingWait) -> SetTimer:
    return SetTimer(fired(run, wait.name, wait.due), wait.due, wait.due, None)


def _revoke(run: Run, call: Revoked) -> Command:
    if call.kind == "member":
        cancel = Cancel(
            id=cancel_id(call.call, now=run.ends_now),
            tree=run.tree,
            run=call.call,
            at=call.at,
            reason=call.reason,
            sender=run.agent,
            now=run.ends_now,
        )
        return Send(cancel, to=call.name)
    if call.resumes is not None:
        # Nothing works at it: the worker that goes on with it leaves things in order.
        return Send(
            ToolCall(
                id=round_id(call.call, call.resumes.round),
                tree=run.tree,
                run=run.id,
                at=call.at,
                agent=run.agent,
                tool=call.name,
                arguments={},
                reply=False,
                cleanup=True,
                resumes=call.resumes,
                origin=run.task.origin if run.task is not None else None,
            )
        )
    number = round_id(call.call, call.round)
    return Revoke(
        ToolResult(
            id=result_id(number),
            tree=run.tree,
            run=run.id,
            at=call.at,
            call=number,
            tool=call.name,
            error=ErrorInfo("cancelled", f"not begun: {call.reason}"),
        )
    )


def _for_call(run: Run, kind: Kind, call: CallState) -> Send:
    task, spec = run.task, run.spec
    assert task is not None
    assert spec is not None
    # What is checked is the answer as it is, values of variables included.
    arguments = call.arguments if call.check else kind.arguments(run, call.arguments)
    if call.kind == "tool":
        return Send(
            ToolCall(
                id=call.message,
                tree=run.tree,
                run=run.id,
                at=call.opened_at,
                agent=run.agent,
                tool=call.name,
                arguments=arguments,
                may_pause=True,
                resumes=call.resumes,
                deadline=min((due for due in (call.due, run.deadline) if due is not None), default=None),
                # What the model reads itself need not travel beyond its limit.
                output_chars=spec.limits.observation_chars if kind.reads_calls(run) else None,
                cleanup=run.cancelled is not None or bool(run.grace),
                origin=origin_of(run, spec) if call.name in MEMORY_TOOLS else task.origin,
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
            task=arguments[TASK],
            inputs=_inputs(run, kind, call, arguments),
            has_files=task.has_files,
            spec=kind.part(run, call) if call.name == run.agent else {},
            reply_to=ReplyTo(agent=run.agent, run=run.id),
            path=[*task.path, run.agent],
            deadline=run.deadline,
            budget=call.budget,
            origin=task.origin,
            standing=standing_of(run, call),
            trace=task.trace,
        )
    )


def _inputs(run: Run, kind: Kind, call: CallState, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return a member's inputs, with the values of variables: at the top they have them already."""
    further = kind.arguments(run, call.arguments.get(ADDITIONAL) or {})
    return inputs_of({**arguments, ADDITIONAL: further})


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
            output=result.output if result.output is not None else result.found,
            error=result.error,
            usage=run.usage,
            steps=run.step,
        )
        summarised = run.spec is not None and run.spec.provide_run_summary
        to = task.reply_to.agent
        commands.append(Send(report, to=to, with_summary=summarised, prompts=run.prompts))
    return commands

"""What one entry of a journal adds to the figures. Pure: taken from the state before it, recorded once it is kept.

An entry is written once however often its record is delivered, so nothing here is counted twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cadre.loop import events as ev
from cadre.loop.arrivals import ModelFailed, ModelLost
from cadre.loop.run import ActionStep, PlanningStep, Run
from cadre.metrics import names
from cadre.metrics.meters import Sample
from cadre.tracing.names import CHAT, EXECUTE_TOOL, INVOKE_AGENT

PROVIDER = "openai"
"""As spans have it: for the way in which every endpoint is asked."""

CODE_TOOL = "python"
TIMED_OUT = "timeout"


def samples_of(run: Run, entry: ev.Entry, what: object) -> list[Sample]:
    """
    Args:
        run: as it was before the entry.
        what: the arrival that the entry accounts for.
    """
    found: list[Sample] = []
    for event in entry.events:
        told = _OF.get(type(event))
        if told is not None:
            found += told(run, entry, event)
    if isinstance(what, ModelLost):
        found.append(Sample(names.ATTEMPTS_LOST, 1, {names.AGENT: entry.agent}))
    if isinstance(what, ModelFailed) and run.model is not None:
        fault = str(what.status or ("rate_limited" if what.rate_limited else "unavailable"))
        asked = _asked(run, entry.agent) | {names.PURPOSE: run.model.purpose, names.ERROR_TYPE: fault}
        found.append(Sample(names.OPERATION_DURATION, max(0.0, entry.at - run.model.at), asked))
    return found


def _answered(run: Run, entry: ev.Entry, event: ev.ModelAnswered) -> list[Sample]:
    asked, usage = _asked(run, entry.agent, event.model), event.usage
    found = [
        Sample(names.OPERATION_DURATION, event.seconds, {**asked, names.PURPOSE: event.purpose}),
        Sample(names.TOKEN_USAGE, usage.input_tokens, {**asked, names.TOKEN_TYPE: "input"}),
        Sample(names.TOKEN_USAGE, usage.output_tokens, {**asked, names.TOKEN_TYPE: "output"}),
    ]
    if usage.cost:
        about = {names.AGENT: entry.agent, names.MODEL: asked[names.MODEL]}
        found.append(Sample(names.COST, usage.cost, about))
    return found


def _tool_answered(run: Run, entry: ev.Entry, event: ev.ToolAnswered) -> list[Sample]:
    return [_tool(entry.agent, event.tool, event.seconds, event.error.type if event.error else None)]


def _block_finished(run: Run, entry: ev.Entry, event: ev.BlockFinished) -> list[Sample]:
    return [_tool(entry.agent, CODE_TOOL, event.seconds, event.error.type if event.error else None)]


def _timed_out(run: Run, entry: ev.Entry, event: ev.CallTimedOut) -> list[Sample]:
    name = next((call.name for call in run.open_calls() if call.id == event.call), "")
    return [_tool(entry.agent, name, event.seconds, TIMED_OUT)]


def _decided(run: Run, entry: ev.Entry, event: ev.ApprovalDecided) -> list[Sample]:
    held = next((call.hold for call in run.open_calls() if call.id == event.call), None)
    if held is None:
        return []
    about = {names.AGENT: entry.agent, names.DECISION: event.verdict}
    return [Sample(names.APPROVAL_WAIT, max(0.0, entry.at - held.at), about)]


def _stepped(run: Run, entry: ev.Entry, event: ev.StepFinished) -> list[Sample]:
    return [Sample(names.STEPS, 1, {names.AGENT: entry.agent})]


def _finished(run: Run, entry: ev.Entry, event: ev.RunFinished) -> list[Sample]:
    about = {names.OPERATION: INVOKE_AGENT, names.AGENT: entry.agent}
    failed = {} if event.state == "success" else {names.ERROR_TYPE: event.state}
    asked, answered = _calls(run, entry.events)
    return [
        Sample(names.RUNS_FINISHED, 1, {names.AGENT: entry.agent, names.STATE: event.state}),
        Sample(names.AGENT_DURATION, max(0.0, entry.at - (run.started_at or entry.at)), about | failed),
        Sample(names.INFERENCE_CALLS, answered, about),
        Sample(names.TOOL_CALLS, asked, about),
    ]


_OF: dict[type, Callable[[Run, ev.Entry, Any], list[Sample]]] = {
    ev.ModelAnswered: _answered,
    ev.ToolAnswered: _tool_answered,
    ev.BlockFinished: _block_finished,
    ev.CallTimedOut: _timed_out,
    ev.ApprovalDecided: _decided,
    ev.StepFinished: _stepped,
    ev.RunFinished: _finished,
}


def _calls(run: Run, events: list[ev.AnyEvent]) -> tuple[int, int]:
    """Tool calls and model answers of the run, those of the entry that ends it included."""
    actions = [step for step in run.memory if isinstance(step, ActionStep) and step.entry]
    plans = sum(isinstance(step, PlanningStep) for step in run.memory)
    actions += [run.current] if run.current is not None else []
    asked = sum(call.kind == "tool" for step in actions for call in step.asked)
    last = sum(isinstance(event, ev.ModelAnswered) for event in events)
    asked += sum(isinstance(event, ev.ToolCalled) for event in events) if last else 0
    return asked, len(actions) + plans + last


def _tool(agent: str, tool: str, seconds: float, fault: str | None) -> Sample:
    about = {names.OPERATION: EXECUTE_TOOL, names.TOOL: tool, names.AGENT: agent}
    if fault:
        about[names.ERROR_TYPE] = fault
    return Sample(names.TOOL_DURATION, seconds, about)


def _asked(run: Run, agent: str, answered_as: str = "") -> dict[str, str]:
    spec = run.spec.model if run.spec is not None else None
    return {
        names.OPERATION: CHAT,
        names.PROVIDER: PROVIDER,
        names.MODEL: (spec.name if spec is not None else "") or answered_as,
        names.AGENT: agent,
    }

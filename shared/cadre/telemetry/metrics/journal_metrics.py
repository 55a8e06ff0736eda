"""Compute what one journal entry adds to the metrics. Pure: computed from the state before the entry.

An entry is written once, however often its record is delivered, so nothing is counted twice.
"""

from collections.abc import Callable
from typing import Any

from cadre.engine.model_request import asked_model
from cadre.journal import events as ev
from cadre.journal.arrivals import ModelFailed
from cadre.journal.run import ActionStep, PlanningStep, Run
from cadre.telemetry.metrics import names
from cadre.telemetry.metrics.meters import Measurements, SeriesKey
from cadre.telemetry.tracing.names import CHAT, EXECUTE_TOOL, INVOKE_AGENT

PROVIDER = "openai"
"""The provider in spans as well: every endpoint is called by OpenAI's API."""

TIMED_OUT = "timeout"


class EntryMetrics:
    """Gathers what one journal entry adds to the metrics; called with each event and the run in the state before it."""

    def __init__(self, run: Run, what: object, at: float) -> None:
        """Look at the run before the entry. `what` is the arrival that it accounts for, at `at` in Unix seconds."""
        self.found: list[Measurements] = []
        self._at = at
        if isinstance(what, ModelFailed) and run.model is not None:
            fault = str(what.status or ("rate_limited" if what.rate_limited else "unavailable"))
            labels = (run.agent, _model_of(run), run.model.purpose, fault)
            self.found.append((_failed_call, labels, (max(0.0, at - run.model.at),)))

    def __call__(self, run: Run, event: ev.AnyEvent) -> None:
        add = _MEASURES.get(type(event))
        if add is not None:
            self.found += add(run, self._at, event)
        else:
            for work in event.describe().work:
                if work.tool and work.is_over:
                    fault = work.error.type if work.error is not None else ""
                    self.found.append((_tool, (run.agent, work.tool, fault), (work.seconds,)))


# --- what an event adds


def _answered(run: Run, at: float, event: ev.ModelAnswered) -> list[Measurements]:
    agent, model, usage = run.agent, _model_of(run) or event.model, event.usage
    values = (event.seconds, usage.input_tokens, usage.output_tokens)
    return [(_call, (agent, model, event.purpose), values)]


def _answered_late(run: Run, at: float, event: ev.RecordIgnored) -> list[Measurements]:
    agent, model, usage = run.agent, _model_of(run) or event.model, event.usage
    if not usage.model_calls:
        return []
    return [(_late, (agent, model), (1, usage.input_tokens, usage.output_tokens))]


def _tool_answered(run: Run, at: float, event: ev.ToolAnswered) -> list[Measurements]:
    labels = (run.agent, event.tool, event.error.type if event.error else "")
    return [(_tool, labels, (event.seconds,))]


def _timed_out(run: Run, at: float, event: ev.CallTimedOut) -> list[Measurements]:
    call = run.call(event.call)
    name = call.name if call is not None and call.is_open else ""
    return [(_tool, (run.agent, name, TIMED_OUT), (event.seconds,))]


def _decided(run: Run, at: float, event: ev.ApprovalDecided) -> list[Measurements]:
    call = run.call(event.call)
    if call is None or call.hold is None:
        return []
    return [(_approval, (run.agent, event.verdict), (max(0.0, at - call.hold.at),))]


def _stepped(run: Run, at: float, event: ev.StepFinished) -> list[Measurements]:
    return [(_step, (run.agent,), (1,))]


def _finished(run: Run, at: float, event: ev.RunFinished) -> list[Measurements]:
    asked, answered = _calls(run)
    took = max(0.0, at - (run.started_at or at))
    return [(_run, (run.agent, event.state), (took, answered, asked))]


_MEASURES: dict[type, Callable[[Run, float, Any], list[Measurements]]] = {
    ev.ModelAnswered: _answered,
    ev.RecordIgnored: _answered_late,
    ev.ToolAnswered: _tool_answered,
    ev.CallTimedOut: _timed_out,
    ev.ApprovalDecided: _decided,
    ev.StepFinished: _stepped,
    ev.RunFinished: _finished,
}


def _calls(run: Run) -> tuple[int, int]:
    """Tool calls and model answers of the run; the answer that follows its last step is no step."""
    actions = [step for step in run.steps if isinstance(step, ActionStep) and step.entry]
    plans = sum(isinstance(step, PlanningStep) for step in run.steps)
    actions += [run.current] if run.current is not None else []
    asked = sum(call.kind == "tool" for step in actions for call in step.asked)
    return asked, len(actions) + plans


def _model_of(run: Run) -> str:
    """As the spec has it; "" where it leaves that to the environment."""
    return asked_model(run).name if run.spec is not None else ""


# --- the series of it


def _call(agent: str, model: str, purpose: str) -> list[SeriesKey]:
    asked = _asked(agent, model)
    return [
        (names.OPERATION_DURATION, {**asked, names.PURPOSE: purpose}),
        (names.TOKEN_USAGE, {**asked, names.TOKEN_TYPE: "input"}),
        (names.TOKEN_USAGE, {**asked, names.TOKEN_TYPE: "output"}),
    ]


def _late(agent: str, model: str) -> list[SeriesKey]:
    asked = _asked(agent, model)
    return [
        (names.ANSWERS_LATE, {names.AGENT: agent}),
        (names.TOKEN_USAGE, {**asked, names.TOKEN_TYPE: "input"}),
        (names.TOKEN_USAGE, {**asked, names.TOKEN_TYPE: "output"}),
    ]


def _failed_call(agent: str, model: str, purpose: str, fault: str) -> list[SeriesKey]:
    about = {**_asked(agent, model), names.PURPOSE: purpose, names.ERROR_TYPE: fault}
    return [(names.OPERATION_DURATION, about)]


def _asked(agent: str, model: str) -> dict[str, str]:
    return {
        names.OPERATION: CHAT,
        names.PROVIDER: PROVIDER,
        names.MODEL: model,
        names.AGENT: agent,
    }


def _tool(agent: str, tool: str, fault: str) -> list[SeriesKey]:
    about = {names.OPERATION: EXECUTE_TOOL, names.TOOL: tool, names.AGENT: agent}
    if fault:
        about[names.ERROR_TYPE] = fault
    return [(names.TOOL_DURATION, about)]


def _approval(agent: str, verdict: str) -> list[SeriesKey]:
    return [(names.APPROVAL_WAIT, {names.AGENT: agent, names.DECISION: verdict})]


def _step(agent: str) -> list[SeriesKey]:
    return [(names.STEPS, {names.AGENT: agent})]


def _run(agent: str, state: str) -> list[SeriesKey]:
    about = {names.OPERATION: INVOKE_AGENT, names.AGENT: agent}
    failed = {} if state == "success" else {names.ERROR_TYPE: state}
    return [
        (names.AGENT_DURATION, about | failed),
        (names.INFERENCE_CALLS, about),
        (names.TOOL_CALLS, about),
    ]

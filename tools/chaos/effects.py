"""No effect twice: what the tools wrote down themselves against claims, results and journals."""

from collections import Counter
from collections.abc import Iterator

from cadre.journal.events import ToolAnswered
from chaos.evidence import EffectMessage, Evidence
from chaos.executions import UNSAFE
from chaos.expected import calls_of
from chaos.journals import events_of

_MARGIN = 10.0
"""Seconds after an executor was hurt in which a call of its may be found interrupted, NATS being hurt as well."""

INTERRUPTED = "Interrupted"


def violations(evidence: Evidence) -> Iterator[str]:
    known = {call: tool for order in evidence.orders for call, tool in calls_of(order.run, order.number).items()}
    yield from _executions(evidence, known)
    yield from _answers(evidence)
    yield from _messages(evidence)


def interrupted(evidence: Evidence) -> dict[str, EffectMessage]:
    """The settled calls whose outcome no one knows, by id."""
    return {
        call: messages[-1]
        for call, messages in evidence.effects.items()
        if messages[-1].error is not None and messages[-1].error.type == INTERRUPTED
    }


def _executions(evidence: Evidence, known: dict[str, str]) -> Iterator[str]:
    for (tool, call), times in Counter((line.tool, line.call) for line in evidence.executions).items():
        if known.get(call) != tool:
            yield f"{tool} ran for call {call}, which nobody can have made"
        elif tool in UNSAFE and times > 1:
            yield f"{tool} took effect {times} times for call {call}"


def _answers(evidence: Evidence) -> Iterator[str]:
    """Yield violations: a reported success has happened, and only an unsafe call may end unknown."""
    ran = {line.call for line in evidence.executions}
    for journal in evidence.journals.values():
        for event in events_of(journal):
            if not isinstance(event, ToolAnswered):
                continue
            if event.error is None and event.call not in ran:
                yield f"call {event.call} of {event.tool} is said to have worked and never ran"
            if event.tool == "balk" and event.error is not None and "is not to be had" in event.error.message:
                continue  # as it should
            if event.error is not None and (event.error.type != INTERRUPTED or event.tool not in UNSAFE):
                yield f"call {event.call} of {event.tool} failed: {event.error.type}: {event.error.message}"


def _messages(evidence: Evidence) -> Iterator[str]:
    for call, messages in evidence.effects.items():
        types = [message.type for message in messages]
        if types != ["effect_claim", "effect_result"]:
            yield f"the effect of call {call} is {', '.join(types)}; it must be one claim and its result"
    for call, result in interrupted(evidence).items():
        if not _is_grounded(evidence, result):
            yield (
                f"call {call} is said to be interrupted, and nothing had happened to its executor"
                f" {result.executor} nor to NATS"
            )


def _is_grounded(evidence: Evidence, result: EffectMessage) -> bool:
    """Something was done to the call's executor, or to the server between them, while the call was at work."""
    pid = result.executor.rpartition("-")[2]
    return any(
        strike.began <= result.at and result.claimed_at <= strike.ended + _MARGIN
        for strike in evidence.strikes
        if str(strike.pid) == pid or strike.victim == "nats"
    )

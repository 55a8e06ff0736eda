"""Explores the loop: from a new run, every canonical arrival in every state that can be reached."""

import functools
import pickle
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from cadre.engine.timers import waits
from cadre.journal.arrivals import Arrival, ModelFailed, ModelLost, ModelReplied, Poisoned, Toolset
from cadre.journal.entry import ArrivalRecord, Entry
from cadre.journal.events import AnyEvent, RecordIgnored, RequestedCall
from cadre.journal.run import Phase, Run
from cadre.kinds.code.fold import state_of
from cadre.loop.decide import decide
from cadre.protocol.cards import AgentCard, ToolCard
from cadre.protocol.code import CodeRequest
from cadre.protocol.messages import (
    Cancel,
    CodeFinished,
    CodeYielded,
    Decision,
    Edit,
    ErrorInfo,
    Report,
    Signal,
    Task,
    TimerFired,
    ToolResult,
    UserMessage,
)
from cadre.protocol.topology import report_id, result_id, task_id, timer_id
from cadre.spec.agent import AgentSpec, Limits, MemorySpec
from cadre.spec.model import ModelSpec

TREE = "t"
SPEC = AgentSpec(
    name="manager",
    description="Explores.",
    tools=["look", "pay"],
    team=["member"],
    planning_interval=1,
    limits=Limits(max_steps=2),
    approvals={"pay": "always"},
    timeouts={"look": 30},
    model=ModelSpec(retries=2),
)
CODER = msgspec.structs.replace(SPEC, kind="code")
CROWDED = AgentSpec(
    name="manager",
    description="Explores.",
    tools=["look"],
    limits=Limits(max_steps=2),
    model=ModelSpec(retries=1, context=1_000),
    memory=MemorySpec(recall=1),
    checks=["prove"],
)
"""With hardly any room for what its tools say, and a tool that looks at its answers."""
OFFER = Toolset(
    tools={
        "look": ToolCard(name="look", description="Looks.", input_schema={"type": "object"}),
        "pay": ToolCard(name="pay", description="Pays.", input_schema={"type": "object"}),
    },
    members={"member": AgentCard(name="member", description="Helps.")},
)
LOOK = RequestedCall("look", {})
PAY = RequestedCall("pay", {})
ASK = RequestedCall("member", {"task": "Help."})
ANSWER = RequestedCall("final_answer", {"answer": "Done."})


class Edge(NamedTuple):
    """An arrival that moved a run on: from phase to phase, and the events that told of it."""

    source: Phase
    arrival: str
    target: Phase
    events: tuple[str, ...]


class Explored(NamedTuple):
    edges: list[Edge]
    """In the order of discovery, each once."""
    runs: list[Run]
    """One run for each state that was reached."""
    entries: list[Entry]
    """Every entry that was applied on the way."""


@functools.cache
def explore() -> Explored:
    """Breadth first; two runs are the same state when they differ in counts and ids alone."""
    found = Explored([], [], [])
    for spec in (SPEC, CODER, CROWDED):
        _explore(spec, found)
    return found


def _explore(spec: AgentSpec, found: Explored) -> None:
    start = Run(id=TREE, tree=TREE)
    found.runs.append(start)
    seen, todo = {_state(start)}, [start]
    while todo:
        run = todo.pop(0)
        # A pickle is copied many times faster than an object is.
        frozen = pickle.dumps(run)
        for what in _arrivals(run):
            after = pickle.loads(frozen)
            entry = _decided(after, what, spec)
            if any(isinstance(event, RecordIgnored) for event in entry.events):
                continue
            found.entries.append(entry)
            edge = Edge(run.phase, type(what).__name__, after.phase, tuple(map(_tag, entry.events)))
            if edge not in found.edges:
                found.edges.append(edge)
            if _state(after) not in seen:
                seen.add(_state(after))
                found.runs.append(after)
                todo.append(after)


def _decided(run: Run, what: Any, spec: AgentSpec) -> Entry:
    """Return what the journal says about the arrival; the run's state is the one after it."""
    arrival = Arrival(what=what, at=float(run.entries), cause="record", toolset=OFFER, spec=spec)
    cause = f"cause-{run.entries + 1}"
    events = decide(run, arrival, cause)
    return Entry(
        arrived=ArrivalRecord("Task"),
        run=run.id,
        agent=SPEC.name,
        n=run.entries,
        cause=cause,
        at=arrival.at,
        events=events,
    )


def _state(run: Run) -> tuple[object, ...]:
    """What decides about the run's future."""
    return (
        run.phase,
        run.step,
        run.failures,
        run.model and run.model.purpose,
        run.summary is not None,
        run.proposal is not None,
        run.deferral and run.deferral.purpose,
        tuple((call.kind, call.hold is not None) for call in run.open_calls()),
        (work := state_of(run).work) and (work.since > 0, bool(work.exchanges)),
        run.cancelled is not None,
        bool(run.signals),
        bool(run.unread),
        run.result and run.result.state,
    )


def _arrivals(run: Run) -> Iterator[Any]:
    """Every kind of arrival, such as it would be for this run now."""
    head: dict[str, Any] = {"tree": run.tree, "run": run.id, "at": 0.0}
    attempt = run.model.attempt if run.model else 1
    task = Task(id=task_id(run.id), agent=SPEC.name, task="Explore.", deadline=1e9, **head)
    yield task
    for calls in ([LOOK], [LOOK, ASK], [PAY], [ANSWER], [RequestedCall("nothing", {})], []):
        yield ModelReplied(attempt=attempt, content="", calls=calls)
    yield ModelReplied(attempt=attempt, content="<code>look()</code>")
    work = state_of(run).work
    block, exchange = (work.block, len(work.exchanges)) if work else ("none", 0)
    about: dict[str, Any] = {"block": block, "exchange": exchange, **head}
    if exchange == 0:
        asked = [CodeRequest("look", {}), CodeRequest("member", {"task": "Help."})]
        yield CodeYielded(id="yielded", calls=asked, **about)
        yield CodeYielded(id="yielded", calls=[CodeRequest("nothing")], **about)
    yield CodeFinished(id="finished", text="1", **about)
    yield CodeFinished(id="finished", error=ErrorInfo("code-failed", "broken"), **about)
    yield CodeFinished(id="finished", output=1, is_final_answer=True, **about)
    yield ModelFailed(attempt=attempt, message="busy", rate_limited=True)
    yield ModelFailed(attempt=attempt, message="broken")
    yield ModelFailed(attempt=attempt, message="refused", final=True)
    if run.spec is not None and run.spec.memory.recall:
        yield ModelFailed(attempt=attempt, message="too long", final=True, too_long=True)
    yield ModelLost(attempt=attempt)
    for timer in [wait.name for wait in waits(run)] + [run.deferral.timer if run.deferral else "none"]:
        yield TimerFired(id=timer_id(run.id, timer), name=timer, **head)
    held = next((call.id for call in run.open_calls() if call.hold is not None), "t_0_2")
    yield Decision(id="approval", call=held, verdict="approved", **head)
    yield Decision(id="refusal", call=held, verdict="rejected", **head)
    opened = {call.kind: call.id for call in run.open_calls() if call.hold is None}
    call, child = opened.get("tool", "t_0_0"), opened.get("member", "t_0_1")
    output: Any = "much to tell " * 100
    if run.recalling is not None:
        call, output = run.recalling.call, {"hits": [{"text": "It is known."}]}
    yield ToolResult(id=result_id(call), call=call, tool="look", output=output, **head)
    yield Report(id=report_id(child), child=child, agent="member", state="success", output=1, **head)
    yield UserMessage(id="message", text="Wait.", **head)
    yield UserMessage(id="order", text="Stop.", mode="interrupt", **head)
    yield Edit(id="edit", base=0, operations=[], **head)
    yield Signal(id="signal", name="go", **head)
    yield Cancel(id="cancel", **head)
    yield Poisoned(id="poison", deliveries=6, task=task if run.phase is Phase.NEW else None)


def _tag(event: AnyEvent) -> str:
    return str(event.__struct_config__.tag)

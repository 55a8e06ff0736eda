"""Builders for tests of the pure loop: specs, offers, arrivals, and a run taken forward by them."""

from __future__ import annotations

from typing import Any

import msgspec

from cadre.delivery.codec import decode, encode
from cadre.engine.commands import Command
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival, ModelFailed, ModelLost, ModelReplied, Offer, Poisoned
from cadre.journal.entry import Entry
from cadre.journal.run import Run
from cadre.journal.steps import Step
from cadre.loop.arrival_of import arrival_of
from cadre.loop.entry_of import entry_of
from cadre.loop.fold import apply_entry
from cadre.loop.owed import owed
from cadre.loop.transition import transition
from cadre.protocol.cards import AgentCard, ToolCard
from cadre.protocol.messages import (
    Cancel,
    ErrorInfo,
    Record,
    ReplyTo,
    Report,
    RunState,
    Task,
    TimerFired,
    ToolResult,
    Usage,
)
from cadre.protocol.topology import call_id, report_id, result_id, task_id, timer_id, tree_of
from cadre.spec.agent import AgentSpec

What = Record | ModelReplied | ModelFailed | ModelLost | Poisoned

SPEC = AgentSpec(name="boss", description="Leads.", tools=["add", "look"], team=["kid"])
ADD = ToolCard(
    name="add",
    description="Adds.",
    input_schema={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
)
LOOK = ToolCard(
    name="look",
    description="Looks.",
    input_schema={
        "type": "object",
        "properties": {"at": {"type": "string"}},
        "required": ["at"],
        "additionalProperties": False,
    },
)
KID = AgentCard(name="kid", description="Helps.")
OFFER = Offer(tools={"add": ADD, "look": LOOK}, members={"kid": KID})


def spec(**fields: Any) -> AgentSpec:
    return msgspec.structs.replace(SPEC, **fields)


def task(text: str = "Do it.", run: str = "r1", parent: str | None = None, **fields: Any) -> Task:
    reply_to = ReplyTo(agent="chief", run=parent) if parent else None
    return Task(
        id=task_id(run),
        tree=tree_of(run),
        run=run,
        at=1.0,
        agent="boss",
        task=text,
        reply_to=reply_to,
        **fields,
    )


def call(name: str, **arguments: Any) -> ev.RequestedCall:
    """A call as the API returns it: its arguments are JSON text."""
    return ev.RequestedCall(name, msgspec.json.encode(arguments).decode())


ANSWER = call("final_answer", answer="42")


def result(id: str, output: Any = None, error: ErrorInfo | None = None, **fields: Any) -> ToolResult:
    return ToolResult(
        id=result_id(id),
        tree=tree_of(id),
        run=id.rpartition("_")[0].rpartition("_")[0],
        at=2.0,
        call=id,
        tool="add",
        output=output,
        error=error,
        **fields,
    )


def report(child: str, text: str = "", state: RunState = "success", **fields: Any) -> Report:
    return Report(
        id=report_id(child),
        tree=tree_of(child),
        run=child.rpartition("_")[0].rpartition("_")[0],
        at=2.0,
        child=child,
        agent="kid",
        state=state,
        text=text,
        output=text or None,
        **fields,
    )


def cancel(id: str = "c1", reason: str = "enough", run: str = "r1") -> Cancel:
    return Cancel(id=id, tree=tree_of(run), run=run, at=2.0, reason=reason, sender="user")


def timer(name: str, run: str = "r1") -> TimerFired:
    return TimerFired(id=timer_id(run, name), tree=tree_of(run), run=run, at=2.0, name=name)


class Course:
    """One run taken forward as the runner does it; each entry goes through its JSON form."""

    def __init__(
        self, spec: AgentSpec = SPEC, offer: Offer = OFFER, run: str = "r1", *, base: int = 0
    ) -> None:
        self.spec, self.offer, self._base = spec, offer, base
        self.run = Run(id=run, tree=tree_of(run))
        self._journal: list[bytes] = []
        self.at = 100.0

    def arrive(
        self,
        what: What,
        *,
        cause: str | None = None,
        snapshot: bool = False,
        history: list[Step] | None = None,
        prefix: list[Step] | None = None,
    ) -> list[ev.AnyEvent]:
        """Takes the arrival in and returns the events that it made true."""
        record = what.id if hasattr(what, "id") else self._in_hand()
        arrival = Arrival(
            what=what,
            at=self.at,
            cause=record,
            offer=self.offer,
            spec=self.spec,
            history=history or [],
            prefix=prefix or [],
            base=self._base,
            base_with_offer=self._base,
        )
        events = transition(self.run, arrival)
        entry = entry_of(
            self.run, arrival, events, cause or self._entry_cause(what, record), snapshot=snapshot
        )
        self._journal.append(encode(entry))
        kept: Entry = decode(self._journal[-1], Entry)
        assert transition(self.run, arrival_of(self.run, kept)) == events, "the entry tells what arrived"
        apply_entry(self.run, kept)
        return events

    def journal(self) -> list[Entry]:
        """The entries, read anew: folding takes over what a snapshot holds."""
        return [decode(data, Entry) for data in self._journal]

    def begin(self, text: str = "Do it.", **fields: Any) -> Course:
        self.arrive(task(text, run=self.run.id, **fields))
        return self

    def say(
        self, *calls: ev.RequestedCall, content: str = "", usage: Usage | None = None
    ) -> list[ev.AnyEvent]:
        """The model answers the call in flight."""
        assert self.run.model is not None
        reply = ModelReplied(
            attempt=self.run.model.attempt,
            content=content,
            calls=list(calls),
            usage=usage or Usage(input_tokens=10, output_tokens=1),
        )
        return self.arrive(reply)

    def fail(self, message: str = "busy", **fields: Any) -> list[ev.AnyEvent]:
        """The model call in flight gets no answer."""
        assert self.run.model is not None
        return self.arrive(ModelFailed(attempt=self.run.model.attempt, message=message, **fields))

    def lose(self) -> list[ev.AnyEvent]:
        """The worker of the model call in flight dies."""
        assert self.run.model is not None
        return self.arrive(ModelLost(attempt=self.run.model.attempt))

    def wake(self) -> list[ev.AnyEvent]:
        """The timer that the run waits for goes off, when it is due."""
        assert self.run.deferral is not None
        self.at = max(self.at, self.run.deferral.until)
        return self.arrive(timer(self.run.deferral.timer, run=self.run.id))

    def id(self, index: int = 0) -> str:
        """Id of a call of the step in work."""
        return call_id(self.run.id, self.run.step, index)

    def owed(self, since: int = 0) -> list[Command]:
        return owed(self.run, since)

    def _in_hand(self) -> str:
        return self.run.model.cause if self.run.model else ""

    def _entry_cause(self, what: What, record: str) -> str:
        model = self.run.model
        if hasattr(what, "id") or model is None:
            return record
        how = f"{record}:lost" if isinstance(what, ModelLost) else f"{self.run.id}:model"
        return f"{how}:{model.purpose}:{model.step}:{what.attempt}"


def kinds(events: list[ev.AnyEvent]) -> list[str]:
    return [type(event).__name__ for event in events]


def only(events: list[ev.AnyEvent], kind: type[Any]) -> Any:
    """The one event of that kind."""
    (found,) = [event for event in events if isinstance(event, kind)]
    return found

"""One run without any service: arrivals, as services send them, are played against an agent's spec by the same
decisions as in production."""

from typing import Any, Self

from cadre.authoring import AgentDefinition, spec_of
from cadre.delivery.codec import decode, encode
from cadre.engine.commands import Command
from cadre.engine.fold import apply_entry
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival, ModelFailed, ModelLost, ModelReplied, Poisoned, Toolset
from cadre.journal.entry import Entry
from cadre.journal.run import Run, Step
from cadre.loop.arrival_of import arrival_of, entry_of
from cadre.loop.decide import copied, decide, transition
from cadre.loop.owed import owed
from cadre.protocol.messages import (
    Cancel,
    ErrorInfo,
    Message,
    ReplyTo,
    Report,
    RunState,
    Task,
    TimerFired,
    ToolResult,
)
from cadre.protocol.topology import call_id, report_id, result_id, task_id, timer_id, tree_of
from cadre.protocol.usage import Usage
from cadre.spec.agent import AgentSpec

What = Message | ModelReplied | ModelFailed | ModelLost | Poisoned


class SimulatedRun:
    """One run, taken forward by its arrivals; each entry goes through its JSON form, as in a journal.

    `run` is the state so far, `at` the time of the next arrival in Unix seconds. The other methods play common
    arrivals; all return the events that the arrival made true, and raise AssertionError when the run does not wait
    for one of this kind. `toolset` are the tools and members that are live.
    """

    def __init__(
        self,
        agent: AgentDefinition | AgentSpec,
        toolset: Toolset | None = None,
        run: str = "r1",
        *,
        base: int = 0,
    ) -> None:
        self.spec, self.toolset, self._base = spec_of(agent), toolset or Toolset(), base
        self.run = Run(id=run, tree=tree_of(run))
        self._journal: list[bytes] = []
        self.at = 100.0

    def arrive(
        self,
        what: What,
        *,
        cause: str | None = None,
        history: list[Step] | None = None,
        prefix: list[Step] | None = None,
    ) -> list[ev.AnyEvent]:
        """Play any arrival: a record of `cadre.testing` (task, result, report …) or the outcome of a model call."""
        record = what.id if hasattr(what, "id") else self._in_hand()
        arrival = Arrival(
            what=what,
            at=self.at,
            cause=record,
            toolset=self.toolset,
            spec=self.spec,
            history=history or [],
            prefix=prefix or [],
            base=self._base,
            base_with_toolset=self._base,
        )
        before, cause = copied(self.run), cause or self._entry_cause(what, record)
        events = decide(self.run, arrival, cause)
        self._journal.append(encode(entry_of(self.run, arrival, events, cause)))
        kept: Entry = decode(self._journal[-1], Entry)
        assert transition(before, arrival_of(before, kept)) == events, "the entry says what arrived"
        apply_entry(before, kept)
        assert before == self.run, "the journal folds into the state in which it was decided"
        return events

    def journal(self) -> list[Entry]:
        """Return the entries so far, decoded again: folding shares parts of them with the state."""
        return [decode(data, Entry) for data in self._journal]

    def begin(self, text: str = "Do it.", **fields: Any) -> Self:
        """The task arrives; further fields are those of a Task."""
        self.arrive(task(text, run=self.run.id, agent=self.spec.name, **fields))
        return self

    def say(self, *calls: ev.RequestedCall, content: str = "", usage: Usage | None = None) -> list[ev.AnyEvent]:
        """The model answers the call in flight, with calls, text or both."""
        assert self.run.model is not None
        reply = ModelReplied(
            attempt=self.run.model.attempt,
            content=content,
            calls=list(calls),
            usage=usage or Usage(input_tokens=10, output_tokens=1),
        )
        return self.arrive(reply)

    def fail(self, message: str = "busy", **fields: Any) -> list[ev.AnyEvent]:
        """The model call in flight fails; further fields are those of a ModelFailed."""
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
        """The id of a call of the step in work, by its index in the model's answer."""
        return call_id(self.run.id, self.run.step, index)

    def owed(self, since: int = 0) -> list[Command]:
        """The messages, model calls and timers that the run owes, those of entries after `since` only."""
        return owed(self.run, since)

    def _in_hand(self) -> str:
        return self.run.model.cause if self.run.model else ""

    def _entry_cause(self, what: What, record: str) -> str:
        model = self.run.model
        if hasattr(what, "id") or model is None:
            return record
        how = f"{record}:lost" if isinstance(what, ModelLost) else f"{self.run.id}:model"
        return f"{how}:{model.purpose}:{model.step}:{what.attempt}"


def task(
    text: str = "Do it.", run: str = "r1", parent: str | None = None, *, agent: str = "agent", **fields: Any
) -> Task:
    """The task that begins a run; with `parent` it comes from that run."""
    reply_to = ReplyTo(agent="chief", run=parent) if parent else None
    return Task(
        id=task_id(run),
        tree=tree_of(run),
        run=run,
        at=1.0,
        agent=agent,
        task=text,
        reply_to=reply_to,
        **fields,
    )


def result(
    id: str, output: Any = None, error: ErrorInfo | None = None, *, tool: str = "tool", **fields: Any
) -> ToolResult:
    """The result of the call with this id."""
    return ToolResult(
        id=result_id(id),
        **_to_caller(id),
        call=id,
        tool=tool,
        output=output,
        error=error,
        **fields,
    )


def report(child: str, text: str = "", state: RunState = "success", *, agent: str = "member", **fields: Any) -> Report:
    """The report of the team member's run with this id, which is the id of its call."""
    return Report(
        id=report_id(child),
        **_to_caller(child),
        child=child,
        agent=agent,
        state=state,
        text=text,
        output=text or None,
        **fields,
    )


def _to_caller(call: str) -> dict[str, Any]:
    """The fields of a record that answers a call, whose id is `<run>_<step>_<index>`."""
    return {"tree": tree_of(call), "run": call.rpartition("_")[0].rpartition("_")[0], "at": 2.0}


def cancel(id: str = "c1", reason: str = "enough", run: str = "r1", *, now: bool = False) -> Cancel:
    """A request to cancel the run."""
    return Cancel(id=id, tree=tree_of(run), run=run, at=2.0, reason=reason, sender="user", now=now)


def timer(name: str, run: str = "r1") -> TimerFired:
    """The timer of the run with this name goes off."""
    return TimerFired(id=timer_id(run, name), tree=tree_of(run), run=run, at=2.0, name=name)

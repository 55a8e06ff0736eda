"""Folds the entries of a run's journal into spans. Each span comes out once, complete, with the entry that ends it.

Spans depend on the entries alone, so every process makes them byte for byte the same, however often. The id of a parent
follows from the run and the place in it, so parallel branches cannot mix up theirs.
"""

from cadre.journal import events as ev
from cadre.journal.entry import Entry
from cadre.protocol.messages import Task
from cadre.protocol.topology import parent_of, tree_of
from cadre.protocol.usage import Usage
from cadre.spec.agent import AgentSpec
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.calls import Calls
from cadre.telemetry.tracing.content import Content
from cadre.telemetry.tracing.ids import agent_span, call_span, root_span, span_id, trace_id
from cadre.telemetry.tracing.kind_spans import fault_of, kind_spans
from cadre.telemetry.tracing.model_input import ModelInput
from cadre.telemetry.tracing.model_spans import ModelSpans
from cadre.telemetry.tracing.open_spans import Fault, OpenSpan, OpenSpans
from cadre.telemetry.tracing.spans import Moment, SpanLink, SpanRecord, Status, Value, link_to, nanoseconds

_ROOT, _AGENT, _STEP = "root", "agent", "step"


class Projection:
    """The spans of one run, as far as its entries have been applied."""

    def __init__(self, tree: str, run: str, *, content: bool = False) -> None:
        self.tree, self.run = tree, run
        self.entries = 0
        """Number of the last entry."""
        self._spans = OpenSpans(tree, run, content=content)
        self._content = Content(on=content)
        self._now = 0
        self._agent = ""
        self._input = ModelInput(tree, run) if content else None
        self._models = ModelSpans(run, self._spans, self._content)
        self._calls = Calls(run, self._spans, self._content)

    def apply(self, entry: Entry) -> list[SpanRecord]:
        """Returns the spans that end with the entry; none if the entry was applied before."""
        if entry.n <= self.entries:
            return []
        self.entries = entry.n
        self._now = nanoseconds(entry.at)
        self._agent = entry.agent
        if self._input is not None:
            self._input.enter(entry)
        for event in entry.events:
            if self._input is not None:
                self._input.apply(event, entry)
            self._take(event)
        return self._spans.take()

    def unfinished(self, at: float) -> list[SpanRecord]:
        """The open spans as they stand at `at` (Unix seconds)."""
        return self._spans.unfinished(nanoseconds(at))

    def _take(self, event: ev.AnyEvent) -> None:
        now = self._now
        match event:
            case ev.RunAccepted(task=task, spec=spec, decided_by=kind):
                self._begin(task, spec, kind)
            case ev.ModelCalled():
                if event.purpose == "act":
                    self._begin_step(event.step)
                read = self._input.request(event.purpose) if self._input is not None else None
                self._models.called(event, self._agent, self._parent(), now, read)
            case ev.ModelAnswered():
                self._models.answered(event, now)
            case ev.ModelDeferred():
                self._models.deferred(event, self._agent, now)
            case ev.ContextOverflowed():
                self._models.overflowed(event, now)
            case ev.StepStarted():
                self._begin_step(event.step, event.name)
            case ev.StepFinished(error=error):
                self._spans.end(_STEP, now, fault_of(error))
            case ev.CancelRequested():
                self._note(Moment(names.CANCEL_EVENT, now))
            case ev.SignalReceived():
                self._note(Moment(names.SIGNAL_EVENT, now))
            case ev.MessageReceived():
                self._note(Moment(names.MESSAGE_EVENT, now))
                self._models.is_interrupted = event.mode == "interrupt"
            case ev.RunFinished():
                self._finish(event)
            case _:
                # Events that belong to no span are ignored there.
                self._calls.take(event, self._agent, self._parent(), now)

    def _note(self, moment: Moment) -> None:
        if (agent := self._spans.get(_AGENT)) is not None:
            agent.moments.append(moment)

    def _parent(self) -> str:
        """The parent of a span that begins now: the step in work, or the run."""
        step = self._spans.get(_STEP)
        return step.span if step is not None else agent_span(self.run)

    # --- the run

    def _begin(self, task: Task, spec: AgentSpec | None, kind: str) -> None:
        self._spans.common |= _whose(task)
        if spec is not None:
            self._models.spec = spec.model
            self._calls.own = kind_spans(kind, spec, self._spans, self._content)
        attributes: dict[str, Value] = {names.AGENT: self._agent}
        links = link_to(task.trace) + _earlier(task)
        content = self._content.of(INPUT_VALUE=task.task)
        parent = call_span(self.run) if parent_of(self.run) is not None else None
        if self.run == self.tree:
            parent = root_span(self.tree)
            about = {names.OPERATION: names.INVOKE_WORKFLOW, names.WORKFLOW: self._agent, names.KIND: "CHAIN"}
            root = OpenSpan(
                parent, None, f"{names.INVOKE_WORKFLOW} {self._agent}", self._now, self._agent, links=links
            )
            root.attributes = {**attributes, **about, **content}
            self._spans.begin(_ROOT, root)
        own: dict[str, Value] = {
            names.OPERATION: names.INVOKE_AGENT,
            names.OI_AGENT: self._agent,
            names.AGENT_PATH: " / ".join([*task.path, self._agent]),
            names.KIND: "AGENT",
        }
        if spec is not None and spec.version:
            own[names.AGENT_VERSION] = spec.version
        agent = OpenSpan(
            agent_span(self.run), parent, f"{names.INVOKE_AGENT} {self._agent}", self._now, self._agent
        )
        agent.attributes = {**attributes, **own, **content}
        self._spans.begin(_AGENT, agent)

    def _begin_step(self, number: int, name: str = "") -> None:
        known = self._spans.get(_STEP)
        if known is not None and known.attributes[names.STEP_NUMBER] == number:
            return  # another attempt
        self._spans.end(_STEP, self._now)
        span = span_id(self.run, "step", number)
        step = OpenSpan(span, agent_span(self.run), f"{names.STEP} {number}", self._now, self._agent)
        step.attributes = {names.STEP_NUMBER: number, names.AGENT: self._agent, names.KIND: "CHAIN"}
        if name:
            step.attributes[names.STEP_NAME] = name
        self._spans.begin(_STEP, step)

    def _finish(self, event: ev.RunFinished) -> None:
        """Ends all open spans: work that goes on elsewhere is no longer part of the run."""
        self._input = None
        outer = (_STEP, _AGENT, _ROOT)
        error = event.error
        why = fault_of(error) or Fault(event.state)
        # A run that gave an answer has not failed, even if it had run out of steps, nor has what it left open.
        fault = why if event.state in ("error", "cancelled") else None
        for key in self._spans.places():
            if key not in outer:
                self._spans.end(key, self._now, fault)
        status: Status = "OK" if event.state == "success" else "UNSET"
        self._spans.end(_STEP, self._now, fault)
        if event.output is not None and (agent := self._spans.get(_AGENT)) is not None:
            agent.moments.append(Moment(names.FINAL_ANSWER_EVENT, self._now))
        attributes = {
            names.RUN_STATUS: event.state,
            names.RUN_STEPS: event.steps,
            **_usage(event.usage),
            **self._content.of(OUTPUT_VALUE=event.output),
        }
        for key in (_AGENT, _ROOT):
            self._spans.end(key, self._now, fault, status, attributes=attributes)


def _whose(task: Task) -> dict[str, Value]:
    """Attributes with the session and the user, where they are known."""
    origin = task.origin
    session = task.session or (origin.session if origin is not None else None)
    found: dict[str, Value] = {}
    if session:
        found |= {names.SESSION: session, names.CONVERSATION: session}
    if origin is not None and origin.user:
        found[names.USER] = origin.user
    return found


def _earlier(task: Task) -> list[SpanLink]:
    """Links to the runs that this one continues or forks."""
    before = [task.continues, task.forks.run if task.forks is not None else None]
    return [SpanLink(trace_id(tree_of(run)), agent_span(run)) for run in before if run]


def _usage(usage: Usage) -> dict[str, Value]:
    found: dict[str, Value] = {
        names.ALL_INPUT_TOKENS: usage.input_tokens,
        names.ALL_OUTPUT_TOKENS: usage.output_tokens,
    }
    if usage.cost:
        found[names.COST] = usage.cost
    return found

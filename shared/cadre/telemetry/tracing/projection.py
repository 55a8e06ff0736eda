"""Fold the entries of a run's journal into spans. Each span is complete and comes out once, with the entry that ends
it.

Spans depend only on the entries, so every process makes them byte for byte the same. The id of a parent follows
from the run and the place in it, so parallel branches cannot confuse theirs.
"""

import functools
from collections import Counter

from cadre.engine.chat import Transcript
from cadre.engine.fold import apply
from cadre.engine.model_request import ModelRequest, model_at
from cadre.journal import events as ev
from cadre.journal.entry import Entry
from cadre.journal.events import AnyEvent
from cadre.journal.run import Run
from cadre.prompting.prompts import Prompts, kind_for, shipped_for
from cadre.protocol.messages import Task
from cadre.protocol.topology import parent_of, tree_of
from cadre.protocol.usage import Usage
from cadre.spec.agent import AgentSpec
from cadre.spec.kinds import declared_kinds
from cadre.spec.model import ModelSpec
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.calls import Calls, fault_of
from cadre.telemetry.tracing.content import Content
from cadre.telemetry.tracing.ids import agent_span, call_span, root_span, span_id, trace_id
from cadre.telemetry.tracing.spans import (
    Fault,
    Moment,
    OpenSpan,
    OpenSpans,
    SpanKind,
    SpanLink,
    SpanRecord,
    Status,
    Value,
    link_to,
    nanoseconds,
)

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
        """Return the spans that end with the entry; none if the entry was applied before."""
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
            case ev.RunAccepted(task=task, spec=spec):
                self._begin(task, spec)
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

    def _begin(self, task: Task, spec: AgentSpec | None) -> None:
        self._spans.common |= _whose(task)
        if spec is not None:
            self._models.spec = spec.model
            self._spans.versions[self._agent] = spec.version
            self._calls.pool = _pool(spec)
        attributes: dict[str, Value] = {names.AGENT: self._agent}
        links = link_to(task.trace) + _earlier(task)
        content = self._content.of(INPUT_VALUE=task.task)
        parent = call_span(self.run) if parent_of(self.run) is not None else None
        if self.run == self.tree:
            parent = root_span(self.tree)
            about = {names.OPERATION: names.INVOKE_WORKFLOW, names.WORKFLOW: self._agent, names.KIND: "CHAIN"}
            root = OpenSpan(parent, None, f"{names.INVOKE_WORKFLOW} {self._agent}", self._now, self._agent, links=links)
            root.attributes = {**attributes, **about, **content}
            self._spans.begin(_ROOT, root)
        own: dict[str, Value] = {
            names.OPERATION: names.INVOKE_AGENT,
            names.OI_AGENT: self._agent,
            names.AGENT_PATH: " / ".join([*task.path, self._agent]),
            names.PROVIDER: names.OPENAI,
            names.KIND: "AGENT",
        }
        if spec is not None:
            about = {names.AGENT_VERSION: spec.version, names.AGENT_DESCRIPTION: spec.description}
            own |= {key: value for key, value in about.items() if value}
        # A member takes what its manager has sent: backends draw the edges between agents from such pairs.
        side: SpanKind = "CONSUMER" if parent_of(self.run) is not None else "INTERNAL"
        agent = OpenSpan(
            agent_span(self.run), parent, f"{names.INVOKE_AGENT} {self._agent}", self._now, self._agent, side
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
        """End all open spans: work that goes on elsewhere is no longer part of the run."""
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


def _pool(spec: AgentSpec) -> str:
    """Return the sandbox pool of an agent; "" without one, and for a kind that is not installed here."""
    kind = declared_kinds().get(spec.kind)
    return next(iter(kind.facts(spec).pools), "") if kind is not None and kind.facts is not None else ""


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
        found[names.ALL_COST] = usage.cost
    return found


_CHAT, _PLAN, _WAIT = "chat", "plan", "wait"


class ModelSpans:
    """Follows the model calls of one run, of which at most one is in flight."""

    def __init__(self, run: str, spans: OpenSpans, content: Content) -> None:
        self._run = run
        self._spans = spans
        self._content = content
        self._parent = ""
        self._before: str | None = None
        """The span of the attempt before."""
        self._made: Counter[tuple[str, int, int]] = Counter()
        """The number of times that each call of the step in work was begun."""
        self._server = self._worker = ""
        """Of the latest answer."""
        self.spec: ModelSpec | None = None
        self.is_interrupted = False
        """True if a message has made the call in flight needless."""

    def called(self, event: ev.ModelCalled, agent: str, parent: str, now: int, read: ModelRequest | None) -> None:
        """Begin the span of an attempt; `read` is what the model reads, where that is known and
        content is on."""
        self._spans.end(_WAIT, now)
        # An attempt that is still open has lost its worker, or its model: this one has taken over.
        lost = Fault(names.MODEL_GIVEN_UP, event.reason) if event.reason else Fault(names.WORKER_LOST)
        if self.is_interrupted:
            lost, self.is_interrupted = Fault(names.INTERRUPTED), False
        self._spans.end(_CHAT, now, lost)
        span = self._span(event)
        if event.purpose == "plan":
            parent = self._plan(event, agent, now)
        self._parent = parent
        asked = model_at(self.spec, event.fallback) if self.spec is not None else None
        model = asked.name if asked is not None else ""
        chat = OpenSpan(span, parent, _name(model), now, agent, "CLIENT")
        chat.attributes = {**self._request_attributes(asked), names.AGENT: agent}
        chat.attributes |= {names.PURPOSE: event.purpose, names.ATTEMPT: event.attempt, names.KIND: "LLM"}
        if read is not None:
            chat.attributes |= self._content.model_input(read)
        if event.attempt > 1 and self._before is not None:
            chat.links.append(SpanLink(trace_id(tree_of(self._run)), self._before))
        self._before = span
        self._spans.begin(_CHAT, chat)

    def answered(self, event: ev.ModelAnswered, now: int) -> None:
        """End the span of the attempt, and of the plan if it answered one."""
        self.is_interrupted = False
        self._server, self._worker = event.server or self._server, event.worker or self._worker
        chat = self._spans.get(_CHAT)
        if chat is not None:
            model = str(chat.attributes.get(names.REQUEST_MODEL) or event.model)
            chat.name = _name(model)
            chat.attributes |= self._answer_attributes(event, model)
            chat.instance = self._worker
        self._spans.end(_CHAT, now)
        if event.purpose == "plan":
            self._spans.end(_PLAN, now)

    def deferred(self, event: ev.ModelDeferred, agent: str, now: int) -> None:
        """End the span of an attempt that failed, and begins that of the wait for the next."""
        reason = "rate_limited" if event.rate_limited else "unavailable"
        attributes: dict[str, Value] = {names.STATUS_CODE: event.status} if event.status is not None else {}
        fault = Fault(str(event.status or reason), event.reason)
        self._spans.end(_CHAT, now, fault, attributes=attributes)
        span = span_id(self._run, "wait", self._before)
        wait = OpenSpan(span, self._parent or agent_span(self._run), names.WAIT_MODEL, now, agent)
        wait.attributes = {names.WAIT_REASON: reason, names.AGENT: agent, names.KIND: "CHAIN"}
        self._spans.begin(_WAIT, wait)

    def overflowed(self, event: ev.ContextOverflowed, now: int) -> None:
        """End the span of an attempt whose request was too long."""
        self._spans.end(_CHAT, now, Fault("context_overflow", event.reason))

    def _span(self, event: ev.ModelCalled) -> str:
        """The id of the call's span. Calls for several summaries within one step get different ones."""
        place = (event.purpose, event.step, event.attempt)
        if self._made and next(iter(self._made))[1] != event.step:
            self._made.clear()
        self._made[place] += 1
        again = self._made[place] - 1
        return span_id(self._run, "chat", *place, *([again] if again else []))

    def _plan(self, event: ev.ModelCalled, agent: str, now: int) -> str:
        known = self._spans.get(_PLAN)
        if known is not None:
            return known.span
        span = span_id(self._run, "plan", event.step)
        plan = OpenSpan(span, agent_span(self._run), f"{names.PLAN} {agent}", now, agent)
        plan.attributes = {names.OPERATION: names.PLAN, names.AGENT: agent, names.KIND: "CHAIN"}
        self._spans.begin(_PLAN, plan)
        return span

    @staticmethod
    def _request_attributes(asked: ModelSpec | None) -> dict[str, Value]:
        found: dict[str, Value] = {names.OPERATION: names.CHAT, names.PROVIDER: names.OPENAI}
        if asked is not None and asked.name:
            found[names.REQUEST_MODEL] = found[names.LLM_MODEL] = asked.name
        if asked is not None and asked.temperature is not None:
            found[names.REQUEST_TEMPERATURE] = asked.temperature
        if asked is not None and asked.max_tokens is not None:
            found[names.REQUEST_MAX_TOKENS] = asked.max_tokens
        if asked is not None and asked.seed is not None:
            found[names.REQUEST_SEED] = asked.seed
        return found

    def _answer_attributes(self, event: ev.ModelAnswered, model: str) -> dict[str, Value]:
        usage = event.usage
        found: dict[str, Value] = {
            names.INPUT_TOKENS: usage.input_tokens,
            names.OUTPUT_TOKENS: usage.output_tokens,
            names.LLM_PROMPT_TOKENS: usage.input_tokens,
            names.LLM_COMPLETION_TOKENS: usage.output_tokens,
            names.LLM_TOTAL_TOKENS: usage.total_tokens,
            **self._content.output_messages(event, self._run),
        }
        if model:
            found[names.REQUEST_MODEL] = found[names.LLM_MODEL] = model
        if event.model:
            found[names.RESPONSE_MODEL] = event.model
        if event.response:
            found[names.RESPONSE_ID] = event.response
        if event.first_seconds is not None:
            found[names.TIME_TO_FIRST] = event.first_seconds
        if self._server:
            host, _, port = self._server.rpartition(":")
            found |= {names.SERVER_ADDRESS: host.strip("[]"), names.SERVER_PORT: int(port)}
        if event.finish_reason:
            found[names.FINISH_REASONS] = [event.finish_reason]
        if event.cached_tokens:
            found[names.CACHED_TOKENS] = found[names.LLM_CACHED_TOKENS] = event.cached_tokens
        if event.reasoning_tokens:
            found[names.REASONING_TOKENS] = found[names.LLM_REASONING_TOKENS] = event.reasoning_tokens
        if usage.cost:
            found[names.COST] = found[names.LLM_COST] = found[names.LANGFUSE_COST] = usage.cost
        return found


def _name(model: str) -> str:
    return f"{names.CHAT} {model}".rstrip()


class ModelInput:
    """The state of one run in addition to its journal, kept in memory until the run ends."""

    def __init__(self, tree: str, run: str, prompts: Prompts | None = None) -> None:
        """`prompts` are those that the run keeps; without them only what is shipped is known."""
        self._run: Run | None = Run(id=run, tree=tree)
        self._prompts = prompts
        self._transcript: Transcript | None = None

    @property
    def run(self) -> Run | None:
        """The state as of the last event; None when entries are missing."""
        return self._run

    def enter(self, entry: Entry) -> None:
        """Begin an entry, before its events. After a missing entry nothing is known any more."""
        if self._run is None or entry.n != self._run.entries + 1:
            self._run = self._transcript = None
        else:
            self._run.entries = entry.n

    def apply(self, event: AnyEvent, entry: Entry) -> None:
        """Take the state past an event of the entry that was begun."""
        if self._run is not None:
            apply(self._run, event, entry.n, entry.at)

    def request(self, purpose: str) -> ModelRequest | None:
        """The request of the model call that has just begun, with references for blobs; None when it is unknown.

        Without the run's prompts it is unknown for an agent with its own prompt file, and for a run that began with
        what another version of Cadre shipped.
        """
        if self._run is None or self._run.spec is None:
            return None
        if self._transcript is None:
            prompts = self._prompts or _shipped_prompts(self._run)
            if prompts is None:
                return None
            self._transcript = Transcript(prompts)
        return self._transcript.request(self._run, purpose)


def _shipped_prompts(run: Run) -> Prompts | None:
    shipped = shipped_for(run.spec) if run.spec is not None else None
    if run.spec is None or shipped is None:
        return None
    prompts = _shipped(shipped, kind_for(run.spec))
    return prompts if run.prompts in ("", prompts.ref) else None


@functools.cache
def _shipped(name: str, kind: str) -> Prompts:
    return Prompts.load(name, kind)

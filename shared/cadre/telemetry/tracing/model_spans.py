"""The spans of a run's model calls: plans, attempts with their tokens, and the waits between attempts."""

from collections import Counter

from cadre.engine.model_choice import model_at
from cadre.engine.model_request import ModelRequest
from cadre.journal import events as ev
from cadre.protocol.topology import tree_of
from cadre.spec.model import ModelSpec
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.content import Content
from cadre.telemetry.tracing.ids import agent_span, span_id, trace_id
from cadre.telemetry.tracing.open_spans import Fault, OpenSpan, OpenSpans
from cadre.telemetry.tracing.spans import SpanLink, Value

PROVIDER = "openai"
"""Every endpoint is called by OpenAI's API; a journal does not say whose endpoint it is."""

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
        """How often each call of the step in work was begun."""
        self.spec: ModelSpec | None = None
        self.is_interrupted = False
        """Whether a message has made the call in flight needless."""

    def called(
        self, event: ev.ModelCalled, agent: str, parent: str, now: int, read: ModelRequest | None
    ) -> None:
        """Begins the span of an attempt; `read` is what the model reads, where that is known and
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
        """Ends the span of the attempt, and of the plan if it answered one."""
        self.is_interrupted = False
        chat = self._spans.get(_CHAT)
        if chat is not None:
            model = str(chat.attributes.get(names.REQUEST_MODEL) or event.model)
            chat.name = _name(model)
            chat.attributes |= self._answer_attributes(event, model)
        self._spans.end(_CHAT, now)
        if event.purpose == "plan":
            self._spans.end(_PLAN, now)

    def deferred(self, event: ev.ModelDeferred, agent: str, now: int) -> None:
        """Ends the span of an attempt that failed, and begins that of the wait for the next."""
        reason = "rate_limited" if event.rate_limited else "unavailable"
        attributes: dict[str, Value] = {names.STATUS_CODE: event.status} if event.status is not None else {}
        fault = Fault(str(event.status or reason), event.reason)
        self._spans.end(_CHAT, now, fault, attributes=attributes)
        span = span_id(self._run, "wait", self._before)
        wait = OpenSpan(span, self._parent or agent_span(self._run), names.WAIT_MODEL, now, agent)
        wait.attributes = {names.WAIT_REASON: reason, names.AGENT: agent, names.KIND: "CHAIN"}
        self._spans.begin(_WAIT, wait)

    def overflowed(self, event: ev.ContextOverflowed, now: int) -> None:
        """Ends the span of an attempt whose request was too long."""
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
        found: dict[str, Value] = {names.OPERATION: names.CHAT, names.PROVIDER: PROVIDER}
        if asked is not None and asked.name:
            found[names.REQUEST_MODEL] = found[names.LLM_MODEL] = asked.name
        if asked is not None and asked.temperature is not None:
            found[names.REQUEST_TEMPERATURE] = asked.temperature
        if asked is not None and asked.max_tokens is not None:
            found[names.REQUEST_MAX_TOKENS] = asked.max_tokens
        return found

    def _answer_attributes(self, event: ev.ModelAnswered, model: str) -> dict[str, Value]:
        usage = event.usage
        found: dict[str, Value] = {
            names.INPUT_TOKENS: usage.input_tokens,
            names.OUTPUT_TOKENS: usage.output_tokens,
            names.LLM_PROMPT_TOKENS: usage.input_tokens,
            names.LLM_COMPLETION_TOKENS: usage.output_tokens,
            names.LLM_TOTAL_TOKENS: usage.tokens,
            **self._content.output_messages(event, self._run),
        }
        if model:
            found[names.REQUEST_MODEL] = found[names.LLM_MODEL] = model
        if event.model:
            found[names.RESPONSE_MODEL] = event.model
        if event.finish_reason:
            found[names.FINISH_REASONS] = [event.finish_reason]
        if event.cached_tokens:
            found[names.CACHED_TOKENS] = found[names.LLM_CACHED_TOKENS] = event.cached_tokens
        if event.reasoning_tokens:
            found[names.REASONING_TOKENS] = found[names.LLM_REASONING_TOKENS] = event.reasoning_tokens
        if usage.cost:
            found[names.COST] = usage.cost
        return found


def _name(model: str) -> str:
    return f"{names.CHAT} {model}".rstrip()

"""The spans of a run's calls: tools and their execution, team members, recalled memories, approvals; and those of the
work that the events of its kind describe."""

from cadre.engine.calls.fold_calls import no_answer
from cadre.journal import events as ev
from cadre.journal.parts import Mark, PieceOfWork, SandboxTurn
from cadre.protocol.codes import ErrorInfo
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.content import Content
from cadre.telemetry.tracing.ids import call_span, span_id
from cadre.telemetry.tracing.spans import (
    Fault,
    Moment,
    OpenSpan,
    OpenSpans,
    SpanKind,
    Value,
    link_to,
    nanoseconds,
)

RECALL = "recall"
"""The tool of the memory service that a run itself calls, before it begins."""

_CALL_TEMPLATE = "cadre.call.{tool}"
_CODE_TEMPLATE = "cadre.code.{pool}"
_WORK = "work"
"""Place of the span of the work that encloses calls."""

_GIVE = (ev.ToolAnswered, ev.DelegateFinished, ev.CallTimedOut, ev.ApprovalDecided, ev.CallRefused)
"""Events behind which work that waits for calls may go on."""


class Calls:
    """Follows the calls of one run, and the work that executors did for them."""

    def __init__(self, run: str, spans: OpenSpans, content: Content) -> None:
        self._run = run
        self._spans = spans
        self._content = content
        self.pool = ""
        """The sandbox pool of the agent, once that is known."""
        self._since = 0
        """The time at which the sandbox was last given the work that goes on there, or the result that this waited
        for."""

    def take(self, event: ev.AnyEvent, agent: str, parent: str, now: int) -> None:
        """Begin and end spans by an event; `parent` is the span in work, `now` is in Unix nanoseconds."""
        if (around := self._spans.get(_WORK)) is not None:
            parent = around.span
        match event:
            case ev.ApprovalRequested():
                self._hold(event, agent, parent, now)
            case ev.ApprovalDecided():
                self._decide(event, now)
            case ev.ToolCalled() if self._spans.get(event.call) is None:
                self._tool(event, agent, parent, now)
            case ev.DelegateStarted():
                self._delegate(event, agent, parent, now)
            case ev.CallRefused():
                self._refuse(event, agent, parent, now)
            case ev.ToolAnswered():
                self._answer(event, now)
            case ev.DelegateFinished(call=call, error=error, state=state) if self._spans.get(call) is not None:
                fault = fault_of(error) if state in ("error", "cancelled") else None
                content = self._content.of(OUTPUT_VALUE=event.text or None)
                self._spans.end(call, now, fault, attributes={names.CALL_STATE: state, **content})
            case ev.CallTimedOut(call=call, code=code):
                self._spans.end(call, now, Fault(code or "timeout", no_answer(event)))
            case ev.CallDropped(call=call, reason=reason):
                self._spans.end(call, now, Fault("dropped", reason))
            case ev.MemoryAsked(call=call, query=query, count=count):
                self._recall(call, query, count, agent, parent, now)
            case ev.MemoryRecalled():
                self._recalled(event, now)
            case _:
                pass
        if type(event) in _GIVE:
            self._since = now
        described = event.describe()
        for mark in described.marks:
            self._mark(mark, agent, parent, now)
        for work in described.work:
            if work.encloses:
                self._enclose(work, agent, parent, now)
            elif work.key and work.ended_at:
                self._work(work, agent, parent, now)

    # --- what a kind's own events say of themselves

    def _mark(self, mark: Mark, agent: str, parent: str, now: int) -> None:
        span = OpenSpan(span_id(parent, mark.key, mark.step), parent, mark.name, now, agent)
        span.attributes = {
            names.AGENT: agent,
            names.KIND: "CHAIN",
            **self._content.of(OUTPUT_VALUE=mark.text or None),
        }
        self._spans.add(span, now)

    def _work(self, work: PieceOfWork, agent: str, parent: str, now: int) -> None:
        # The clock is the worker's: no part of the span may lie behind the time of the journal.
        end = min(nanoseconds(work.ended_at), now)
        start = min(nanoseconds(work.began_at or work.ended_at), end)
        span = OpenSpan(span_id(parent, work.key, work.id), parent, tool_name(work.name), start, agent)
        span.attributes = {
            **about_tool(work.name, work.id, agent),
            names.TOOL_TYPE: "extension",
            **self._content.of(INPUT_VALUE=work.text or None, OUTPUT_VALUE=work.result),
        }
        self._spans.add(span, end, Fault("failed") if work.state == "failed" else None)

    def _enclose(self, work: PieceOfWork, agent: str, parent: str, now: int) -> None:
        if work.turn is None:
            name = tool_name(work.tool)
            span = OpenSpan(span_id(work.id, work.key), parent, name, now, agent)
            span.attributes = {
                **about_tool(work.tool, work.id, agent),
                names.TOOL_TYPE: "extension",
                **self._content.of(TOOL_ARGUMENTS={work.name: work.text}, INPUT_VALUE=work.text),
            }
            self._spans.begin(_WORK, span)
            self._since = now
            return
        fault = fault_of(work.error)
        self._turn(work, work.turn, fault, now)
        if work.is_over:
            said = work.result or None
            content = self._content.of(TOOL_RESULT=said, OUTPUT_VALUE=said)
            self._spans.end(_WORK, now, fault, attributes=content)

    def _turn(self, work: PieceOfWork, turn: SandboxTurn, fault: Fault | None, now: int) -> None:
        if (around := self._spans.get(_WORK)) is None:
            return
        span = span_id(work.id, "exchange", turn.number)
        template, message = _CODE_TEMPLATE.format(pool=self.pool), f"{work.id}:{turn.number}"
        name = f"{names.PROCESS} {template}"
        sent = self._send(around, span, template, message, self._since)
        done = OpenSpan(span, sent, name, self._since, "sandbox", "CONSUMER", turn.instance)
        done.attributes = {
            **about_messaging(template, message),
            names.PROCESS_EXECUTABLE: work.tool,
            names.SANDBOX_EXCHANGE: turn.number,
            names.KIND: "CHAIN",
        }
        if turn.tier:
            done.attributes[names.SANDBOX_TIER] = turn.tier
        self._spans.add(done, now, fault)
        self._since = now

    # --- people

    def _hold(self, event: ev.ApprovalRequested, agent: str, parent: str, now: int) -> None:
        span = span_id(event.call, "approval")
        wait = OpenSpan(span, parent, f"{names.WAIT_APPROVAL} {event.name}", now, agent)
        wait.attributes = {
            names.WAIT_REASON: "human_input",
            names.TOOL_CALL: event.call,
            names.AGENT: agent,
            names.KIND: "GUARDRAIL",
            **self._content.of(TOOL_ARGUMENTS=event.arguments),
        }
        self._spans.begin(f"approval {event.call}", wait)

    def _decide(self, event: ev.ApprovalDecided, now: int) -> None:
        key = f"approval {event.call}"
        wait = self._spans.get(key)
        if wait is not None:
            outcome = {"approved": "allow", "corrected": "allow"}.get(event.verdict, "deny")
            wait.moments.append(Moment(names.DECISION_EVENT, now, {names.DECISION: outcome}))
            wait.links += link_to(event.trace)
            wait.attributes[names.APPROVAL_OUTCOME] = event.verdict
        self._spans.end(key, now)

    # --- tools

    def _tool(self, event: ev.ToolCalled, agent: str, parent: str, now: int) -> None:
        kind: SpanKind = "CLIENT" if event.tool in names.MEMORY_TOOLS else "INTERNAL"
        call = OpenSpan(call_span(event.call), parent, tool_name(event.tool), now, agent, kind)
        call.attributes = {
            **about_tool(event.tool, event.call, agent),
            **self._content.of(TOOL_ARGUMENTS=event.arguments, INPUT_VALUE=event.arguments),
        }
        self._spans.begin(event.call, call)

    def _refuse(self, event: ev.CallRefused, agent: str, parent: str, now: int) -> None:
        """Nothing was sent: a span of no length shows that the model asked for the call."""
        if self._spans.get(event.call) is not None:
            self._spans.end(event.call, now, fault_of(event.error))
            return
        call = OpenSpan(call_span(event.call), parent, f"{names.EXECUTE_TOOL} {event.name}", now, agent)
        call.attributes = {
            **about_tool(event.name, event.call, agent),
            names.CALL_STATE: "refused",
            **self._content.of(TOOL_ARGUMENTS=event.arguments),
        }
        self._spans.add(call, now, fault_of(event.error))

    def _answer(self, event: ev.ToolAnswered, now: int) -> None:
        call = self._spans.get(event.call)
        if call is None:
            return
        fault = fault_of(event.error)
        if event.executor:
            self._executed(call, event, event.tool, fault, now)
        content = self._content.of(TOOL_RESULT=event.output, OUTPUT_VALUE=event.output)
        self._spans.end(event.call, now, fault, attributes=content)

    def _executed(
        self,
        call: OpenSpan,
        event: ev.ToolAnswered | ev.MemoryRecalled,
        tool: str,
        fault: Fault | None,
        now: int,
    ) -> None:
        """Add the span of the executor's work: as long as that took, and always within its call, even if the executor's
        clock differs. When its beginning is unknown, it ends with the arrival of the result."""
        template = _CALL_TEMPLATE.format(tool=tool)
        took = round(event.seconds * 1e9)
        begun = nanoseconds(event.started_at) if event.started_at is not None else now
        start = max(call.start, min(begun, now - took))
        span, name = span_id(event.call, "process"), f"{names.PROCESS} {template}"
        sent = self._send(call, span, template, event.call, call.start)
        work = OpenSpan(span, sent, name, start, tool, "CONSUMER", event.executor)
        work.attributes = {**about_messaging(template, event.call), names.OI_TOOL: tool, names.KIND: "CHAIN"}
        self._spans.add(work, min(start + took, now), fault)

    def _send(self, call: OpenSpan, work: str, template: str, message: str, at: int) -> str:
        """Return the span that `work` hangs below: the one of sending it, or a call that is one of a client.

        The conventions have the call of a tool within its agent (INTERNAL), and backends draw the edges between agents
        from pairs of a PRODUCER, or CLIENT, and the CONSUMER below it.
        """
        if call.kind == "CLIENT":
            return call.span
        sent = OpenSpan(span_id(work, "send"), call.span, f"{names.SEND} {template}", at, call.service, "PRODUCER")
        sent.attributes = {**about_messaging(template, message, names.SEND), names.KIND: "CHAIN"}
        self._spans.add(sent, at)
        return sent.span

    # --- memories

    def _recall(self, call: str, query: str, count: int, agent: str, parent: str, now: int) -> None:
        """The run searches memories of earlier runs before it begins."""
        search = OpenSpan(call_span(call), parent, names.SEARCH_MEMORY, now, agent, "CLIENT")
        search.attributes = {
            **about_tool(RECALL, call, agent),
            names.TOP_K: count,
            **self._content.of(QUERY_TEXT=query, INPUT_VALUE=query),
        }
        self._spans.begin(call, search)

    def _recalled(self, event: ev.MemoryRecalled, now: int) -> None:
        call = self._spans.get(event.call)
        if call is None:
            return
        fault = fault_of(event.error)
        if event.executor:
            self._executed(call, event, RECALL, fault, now)
        content = self._content.of(OUTPUT_VALUE=[memory.text for memory in event.memories] or None)
        found: dict[str, Value] = {names.MEMORY_COUNT: len(event.memories), **content}
        self._spans.end(event.call, now, fault, attributes=found)

    # --- team members

    def _delegate(self, event: ev.DelegateStarted, agent: str, parent: str, now: int) -> None:
        name = f"{names.INVOKE_AGENT} {event.member}"
        call = OpenSpan(call_span(event.call), parent, name, now, agent, "CLIENT")
        call.attributes = {
            names.OPERATION: names.INVOKE_AGENT,
            names.PROVIDER: names.OPENAI,
            names.AGENT: event.member,
            names.CHILD_RUN: event.call,
            names.TOOL_CALL: event.call,
            # The member's own span has the kind AGENT.
            names.KIND: "CHAIN",
            **self._content.of(INPUT_VALUE=event.task),
        }
        self._spans.begin(event.call, call)


def tool_name(tool: str) -> str:
    """Return the name of the span of a call of this tool."""
    return names.MEMORY_TOOLS.get(tool) or f"{names.EXECUTE_TOOL} {tool}"


def about_tool(tool: str, call: str, agent: str) -> dict[str, Value]:
    """Return the attributes of a tool call, after OpenTelemetry's GenAI conventions."""
    return {
        names.OPERATION: names.MEMORY_TOOLS.get(tool, names.EXECUTE_TOOL),
        names.TOOL: tool,
        names.TOOL_CALL: call,
        names.TOOL_TYPE: "function",
        names.AGENT: agent,
        names.OI_TOOL: tool,
        names.KIND: "RETRIEVER" if names.MEMORY_TOOLS.get(tool) == names.SEARCH_MEMORY else "TOOL",
    }


def about_messaging(template: str, message: str, operation: str = names.PROCESS) -> dict[str, Value]:
    """Return the attributes of sending or processing a message, after OpenTelemetry's messaging conventions."""
    return {
        names.MESSAGING_SYSTEM: "nats",
        names.MESSAGING_OPERATION: operation,
        names.MESSAGING_OPERATION_TYPE: operation,
        names.DESTINATION_TEMPLATE: template,
        names.MESSAGE_ID: message,
    }


def fault_of(error: ErrorInfo | None) -> Fault | None:
    """Return a span's fault, from the error of an event."""
    return Fault(error.type, error.message) if error is not None else None

"""The spans of a run's calls: tools and their execution elsewhere, team members, memories, blocks of code, people."""

from __future__ import annotations

from cadre.journal import events as ev
from cadre.protocol.messages import ErrorInfo
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.content import Content
from cadre.telemetry.tracing.ids import block_span, call_span, span_id
from cadre.telemetry.tracing.open_spans import Fault, Opened, OpenSpans
from cadre.telemetry.tracing.spans import Moment, Value, link_to, nanoseconds

PYTHON = "python"
"""As a tool: what runs the blocks of an agent that writes code."""

RECALL = "recall"
"""The tool of the memory service that a run asks by itself."""

_BLOCK = "block"
_CALL_TEMPLATE = "cadre.call.{tool}"
_CODE_TEMPLATE = "cadre.code.{pool}"


class Calls:
    """What a step has asked for and waits for."""

    def __init__(self, run: str, spans: OpenSpans, content: Content) -> None:
        self._run = run
        self._spans = spans
        self._content = content
        self.pool = "default"
        """Whose sandboxes run the code."""
        self._code_since = 0
        """When the sandbox was last handed the block, or the last of the replies that it had waited for."""

    def take(self, event: ev.AnyEvent, agent: str, parent: str, now: int) -> None:
        block = self._spans.get(_BLOCK)
        parent = block.span if block is not None else parent
        match event:
            case ev.ApprovalRequested():
                self._hold(event, agent, parent, now)
            case ev.ApprovalDecided():
                self._decide(event, now)
            case ev.ToolCalled():
                self._tool(event, agent, parent, now)
            case ev.DelegateStarted():
                self._delegate(event, agent, parent, now)
            case ev.CallRefused():
                self._refuse(event, agent, parent, now)
            case ev.ToolAnswered():
                self._answer(event, now)
            case ev.DelegateFinished(call=call, error=error, state=state) if (
                self._spans.get(call) is not None
            ):
                fault = _fault(error) if state in ("error", "cancelled") else None
                told = self._content.of(OUTPUT_VALUE=event.text or None)
                self._spans.end(call, now, fault, attributes={names.CALL_STATE: state, **told})
                self._code_since = now
            case ev.CallTimedOut(call=call, seconds=seconds):
                self._spans.end(call, now, Fault("timeout", f"no answer within {seconds:g} s"))
                self._code_since = now
            case ev.MemoryAsked(call=call, query=query, count=count):
                self._recall(call, query, count, agent, parent, now)
            case ev.MemoryRecalled():
                self._recalled(event, now)
            case ev.BlockStarted():
                self._start_block(event, agent, parent, now)
            case ev.BlockYielded():
                self._exchange(event, None, now)
            case ev.BlockFinished():
                self._exchange(event, _fault(event.error), now)
                told = self._content.of(TOOL_RESULT=event.text or None, OUTPUT_VALUE=event.text or None)
                self._spans.end(_BLOCK, now, _fault(event.error), attributes=told)
            case _:
                pass

    # --- people

    def _hold(self, event: ev.ApprovalRequested, agent: str, parent: str, now: int) -> None:
        span = span_id(event.call, "approval")
        wait = Opened(span, parent, f"{names.WAIT_APPROVAL} {event.name}", now, agent)
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
        self._code_since = now

    # --- tools

    def _tool(self, event: ev.ToolCalled, agent: str, parent: str, now: int) -> None:
        call = Opened(call_span(event.call), parent, _tool_name(event.tool), now, agent, "CLIENT")
        call.attributes = {
            **_about_tool(event.tool, event.call, agent),
            **self._content.of(TOOL_ARGUMENTS=event.arguments, INPUT_VALUE=event.arguments),
        }
        self._spans.begin(event.call, call)

    def _refuse(self, event: ev.CallRefused, agent: str, parent: str, now: int) -> None:
        """Nothing was sent anywhere: a span without a length says that the model had asked for it."""
        if self._spans.get(event.call) is not None:
            self._spans.end(event.call, now, _fault(event.error))
            return
        call = Opened(call_span(event.call), parent, f"{names.EXECUTE_TOOL} {event.name}", now, agent)
        call.attributes = {
            **_about_tool(event.name, event.call, agent),
            names.CALL_STATE: "refused",
            **self._content.of(TOOL_ARGUMENTS=event.arguments),
        }
        self._spans.add(call, now, _fault(event.error))
        self._code_since = now

    def _answer(self, event: ev.ToolAnswered, now: int) -> None:
        call = self._spans.get(event.call)
        if call is None:
            return
        fault = _fault(event.error)
        if event.executor:
            self._executed(call, event, event.tool, fault, now)
        told = self._content.of(TOOL_RESULT=event.output, OUTPUT_VALUE=event.output)
        self._spans.end(event.call, now, fault, attributes=told)
        self._code_since = now

    def _executed(
        self,
        call: Opened,
        event: ev.ToolAnswered | ev.MemoryRecalled,
        tool: str,
        fault: Fault | None,
        now: int,
    ) -> None:
        """What an executor did: as long as that took, and within its call however its clock goes. Where nobody
        told when it began, it ends with the arrival of its result."""
        template = _CALL_TEMPLATE.format(tool=tool)
        took = round(event.seconds * 1e9)
        begun = nanoseconds(event.started_at) if event.started_at is not None else now
        start = max(call.start, min(begun, now - took))
        span, name = span_id(event.call, "process"), f"{names.PROCESS} {template}"
        work = Opened(span, call.span, name, start, tool, "CONSUMER", event.executor)
        work.attributes = {**_messaging(template, event.call), names.OI_TOOL: tool, names.KIND: "CHAIN"}
        self._spans.add(work, min(start + took, now), fault)

    # --- memories

    def _recall(self, call: str, query: str, count: int, agent: str, parent: str, now: int) -> None:
        """A run begins with what is known from earlier ones."""
        search = Opened(call_span(call), parent, names.SEARCH_MEMORY, now, agent, "CLIENT")
        search.attributes = {
            **_about_tool(RECALL, call, agent),
            names.TOP_K: count,
            **self._content.of(QUERY_TEXT=query, INPUT_VALUE=query),
        }
        self._spans.begin(call, search)

    def _recalled(self, event: ev.MemoryRecalled, now: int) -> None:
        call = self._spans.get(event.call)
        if call is None:
            return
        fault = _fault(event.error)
        if event.executor:
            self._executed(call, event, RECALL, fault, now)
        told = self._content.of(OUTPUT_VALUE=[memory.text for memory in event.memories] or None)
        found: dict[str, Value] = {names.MEMORY_COUNT: len(event.memories), **told}
        self._spans.end(event.call, now, fault, attributes=found)

    # --- team members

    def _delegate(self, event: ev.DelegateStarted, agent: str, parent: str, now: int) -> None:
        name = f"{names.INVOKE_AGENT} {event.member}"
        call = Opened(call_span(event.call), parent, name, now, agent, "CLIENT")
        call.attributes = {
            names.OPERATION: names.INVOKE_AGENT,
            names.AGENT: event.member,
            names.CHILD_RUN: event.call,
            names.TOOL_CALL: event.call,
            # The member's own span is the agent: here it is only asked.
            names.KIND: "CHAIN",
            **self._content.of(INPUT_VALUE=event.task),
        }
        self._spans.begin(event.call, call)

    # --- code

    def _start_block(self, event: ev.BlockStarted, agent: str, parent: str, now: int) -> None:
        block = Opened(block_span(event.block), parent, _tool_name(PYTHON), now, agent, "CLIENT")
        block.attributes = {
            **_about_tool(PYTHON, event.block, agent),
            names.TOOL_TYPE: "extension",
            **self._content.of(TOOL_ARGUMENTS=event.code, INPUT_VALUE=event.code),
        }
        self._spans.begin(_BLOCK, block)
        self._code_since = now

    def _exchange(self, event: ev.BlockYielded | ev.BlockFinished, fault: Fault | None, now: int) -> None:
        """What a sandbox did between two of the block's waits."""
        block = self._spans.get(_BLOCK)
        if block is None:
            return
        span = span_id(event.block, "exchange", event.exchange)
        template = _CODE_TEMPLATE.format(pool=self.pool)
        name = f"{names.PROCESS} {template}"
        work = Opened(span, block.span, name, self._code_since, "sandbox", "CONSUMER", event.sandbox)
        work.attributes = {
            **_messaging(template, f"{event.block}:{event.exchange}"),
            names.PROCESS_EXECUTABLE: PYTHON,
            names.SANDBOX_EXCHANGE: event.exchange,
            names.KIND: "TOOL",
        }
        if event.tier:
            work.attributes[names.SANDBOX_TIER] = event.tier
        self._spans.add(work, now, fault)
        self._code_since = now


def _tool_name(tool: str) -> str:
    return names.MEMORY_TOOLS.get(tool) or f"{names.EXECUTE_TOOL} {tool}"


def _about_tool(tool: str, call: str, agent: str) -> dict[str, Value]:
    found: dict[str, Value] = {
        names.OPERATION: names.MEMORY_TOOLS.get(tool, names.EXECUTE_TOOL),
        names.TOOL: tool,
        names.TOOL_CALL: call,
        names.TOOL_TYPE: "function",
        names.AGENT: agent,
        names.OI_TOOL: tool,
        names.KIND: "RETRIEVER" if names.MEMORY_TOOLS.get(tool) == names.SEARCH_MEMORY else "TOOL",
    }
    return found


def _messaging(template: str, message: str) -> dict[str, Value]:
    return {
        names.MESSAGING_SYSTEM: "nats",
        names.MESSAGING_OPERATION: names.PROCESS,
        names.MESSAGING_OPERATION_TYPE: names.PROCESS,
        names.DESTINATION_TEMPLATE: template,
        names.MESSAGE_ID: message,
    }


def _fault(error: ErrorInfo | None) -> Fault | None:
    return Fault(error.type, error.message) if error is not None else None

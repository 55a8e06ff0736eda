"""The spans of a block of code: the block itself, and what a sandbox did between two of its waits."""

from cadre.journal import events as ev
from cadre.journal.parts import JournalEvent
from cadre.kinds.code.records import PYTHON, BlockFinished, BlockStarted, BlockYielded
from cadre.kinds.code.section import code_of
from cadre.spec.agent import AgentSpec
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.content import Content
from cadre.telemetry.tracing.ids import block_span, span_id
from cadre.telemetry.tracing.kind_spans import about_messaging, about_tool, fault_of, tool_name
from cadre.telemetry.tracing.open_spans import Fault, OpenSpan, OpenSpans

_BLOCK = "block"
_CODE_TEMPLATE = "cadre.code.{pool}"


class BlockSpans:
    """`kind_spans.KindSpans` for agents that write code."""

    def __init__(self, spec: AgentSpec, spans: OpenSpans, content: Content) -> None:
        self._spans = spans
        self._content = content
        self._pool = code_of(spec).pool
        self._since = 0
        """When the sandbox was last handed the block, or the last of the replies that it had waited for."""

    def parent(self, parent: str) -> str:
        """The block of the step, or the step itself."""
        block = self._spans.get(_BLOCK)
        return block.span if block is not None else parent

    def take(self, event: JournalEvent, agent: str, parent: str, now: int) -> None:
        """Takes any event of the run, after the common spans have."""
        match event:
            case BlockStarted():
                self._start(event, agent, parent, now)
            case BlockYielded():
                self._exchange(event, None, now)
            case BlockFinished():
                self._exchange(event, fault_of(event.error), now)
                said = "\n".join(text for text in (event.logs.rstrip("\n"), event.text) if text) or None
                result = self._content.of(TOOL_RESULT=said, OUTPUT_VALUE=said)
                self._spans.end(_BLOCK, now, fault_of(event.error), attributes=result)
            case ev.ToolAnswered() | ev.DelegateFinished() | ev.CallTimedOut() | ev.ApprovalDecided():
                self._since = now
            case ev.CallRefused():
                self._since = now
            case _:
                pass

    def _start(self, event: BlockStarted, agent: str, parent: str, now: int) -> None:
        block = OpenSpan(block_span(event.block), parent, tool_name(PYTHON), now, agent, "CLIENT")
        block.attributes = {
            **about_tool(PYTHON, event.block, agent),
            names.TOOL_TYPE: "extension",
            **self._content.of(TOOL_ARGUMENTS={"code": event.code}, INPUT_VALUE=event.code),
        }
        self._spans.begin(_BLOCK, block)
        self._since = now

    def _exchange(self, event: BlockYielded | BlockFinished, fault: Fault | None, now: int) -> None:
        block = self._spans.get(_BLOCK)
        if block is None:
            return
        span = span_id(event.block, "exchange", event.exchange)
        template = _CODE_TEMPLATE.format(pool=self._pool)
        name = f"{names.PROCESS} {template}"
        work = OpenSpan(span, block.span, name, self._since, "sandbox", "CONSUMER", event.sandbox)
        work.attributes = {
            **about_messaging(template, f"{event.block}:{event.exchange}"),
            names.PROCESS_EXECUTABLE: PYTHON,
            names.SANDBOX_EXCHANGE: event.exchange,
            names.KIND: "CHAIN",
        }
        if event.tier:
            work.attributes[names.SANDBOX_TIER] = event.tier
        self._spans.add(work, now, fault)
        self._since = now

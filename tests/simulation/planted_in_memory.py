"""Bugs to find in what is remembered, recalled and summarized: parts with one rule broken."""

from typing import Any

from msgspec.structs import replace

from cadre.engine.chat import Transcript
from cadre.engine.commands import CallModel, Command, Send
from cadre.engine.model_request import ModelRequest
from cadre.errors import OutcomeUnknown
from cadre.journal.run import Run
from cadre.ports import Confirm
from cadre.protocol.memory import RECALL, REMEMBER
from cadre.protocol.messages import Record, ToolCall, ToolResult
from cadre.runtime.journaling import Journaling
from cadre.runtime.model_calls import ModelCalls, ModelOutcome
from cadre.runtime.run_cache import PinnedPrompts
from cadre.runtime.runner import Runner
from cadre.spec.agent import AgentSpec
from cadre_memory.index.scopes import Caller
from cadre_memory.index.vector_index import Chunk
from cadre_memory.tools.memories import Remember
from simulation.memory import SimMemories


class LeavesOnce(Journaling):
    """After a crash it believes that the memory service has what it is owed."""

    def left_owed(self, run: Run, record_id: str) -> list[Command]:
        commands = super().left_owed(run, record_id)
        return [one for one in commands if not (isinstance(one, Send) and _is_left(one.message))]


def _is_left(message: object) -> bool:
    return isinstance(message, ToolCall) and message.tool == REMEMBER


class StoresAnew(SimMemories):
    """Gives each delivery of the same memory its own id."""

    def chunks(self, wanted: Remember, caller: Caller, at: float) -> list[Chunk]:
        count = len(self.index.points)
        return [replace(one, id=f"{one.id}-{count}") for one in super().chunks(wanted, caller, at)]


class TakesSilenceForDone(SimMemories):
    """Says that a memory is kept though its engine has not said so."""

    async def call(self, tool: str, arguments: dict[str, Any], caller: Caller, at: float, now: float) -> Any:
        try:
            return await super().call(tool, arguments, caller, at, now)
        except OutcomeUnknown:
            return {"memory": caller.call, "chunks": 1, "scope": "run"}


class SharesAnswers(Journaling):
    """Gives a run what the memory service has answered to another."""

    _last: Any = None

    async def account(self, record: Record, deliveries: int, seq: int, slot: int) -> list[Command]:
        if isinstance(record, ToolResult) and record.tool == RECALL and record.error is None:
            last, self._last = self._last, record.output
            record = replace(record, output=last or record.output)
        return await super().account(record, deliveries, seq, slot)


class ShowsEverything(Runner):
    """Shows its model everything that it ever read."""

    def __init__(self, spec: AgentSpec, prompts: PinnedPrompts, *given: Any, **named: Any) -> None:
        super().__init__(spec, prompts, *given, **named)
        self._calls.__class__ = _WithoutSummary
        self._calls.prompts = prompts.own  # type: ignore[attr-defined]


class _WithoutSummary(ModelCalls):
    async def make(self, run: Run, command: CallModel, request: ModelRequest, confirm: Confirm) -> ModelOutcome | None:
        if command.purpose == "act":
            request = Transcript(self.prompts).request(replace(run, summary=None), "act")  # type: ignore[attr-defined]
        return await super().make(run, command, request, confirm)

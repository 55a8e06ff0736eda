"""The tool `python_interpreter`: code for agents that call tools, each call in a fresh interpreter of the pool."""

import logging
import secrets
from typing import Any

from cadre.delivery.call_worker import CallWorker
from cadre.delivery.retry import retry
from cadre.delivery.worker import impersonation
from cadre.engine.context.text_size import clip
from cadre.errors import RetryableError, UnreadableMessage
from cadre.ports import Blobs, Bus, Clock, Delivery, QuarantineStore
from cadre.protocol.cards import ToolCard
from cadre.protocol.code import BASE_IMPORTS, INTERPRETER_TOOL
from cadre.protocol.files import dicts_in
from cadre.protocol.messages import ErrorInfo, ToolCall
from cadre.protocol.tagged import for_people
from cadre.protocol.topology import Address
from cadre.runtime.tool_output import cut_to_read, oversized
from cadre_sandbox.interpreters.contract import BlockRequest, Failed, Finished, InterpreterLost, SandboxError
from cadre_sandbox.serving.exchange import explain, to_json
from cadre_sandbox.serving.warm_pool import RunInterpreter, WarmPool
from cadre_sandbox.wire.values import MARKERS

log = logging.getLogger("cadre.sandbox")

DEFAULT_POOL = "default"

_TRIES = 3
"""Interpreters that may be lost in one call."""

_DESCRIPTION = """\
Runs Python code and returns what it printed and the value of its last expression. Each call begins with an empty \
interpreter: no variable of an earlier call is left, there is no network, and no file outlives the call. These modules \
can be imported: {modules}."""


def card_of(pool: str, modules: str) -> ToolCard:
    """Return the tool's card, by which models know it. Another pool's tool has the pool's name in its own: their
    interpreters differ."""
    return ToolCard(
        name=INTERPRETER_TOOL if pool == DEFAULT_POOL else f"{INTERPRETER_TOOL}_{pool}"[:64],
        description=_DESCRIPTION.format(modules=", ".join(imports_of(modules))),
        input_schema={
            "type": "object",
            "properties": {"code": {"type": "string", "description": "Python code, whole."}},
            "required": ["code"],
            "additionalProperties": False,
        },
        # The code sees nothing of the world: after a crash it simply runs again.
        read_only=True,
    )


def imports_of(modules: str) -> list[str]:
    """Return what code of the tool may import: the base imports, and the modules that the sandbox was started with."""
    return [*BASE_IMPORTS, *(module.strip() for module in modules.split(",") if module.strip())]


class InterpreterTool:
    """Handles the calls of the tool `python_interpreter`."""

    def __init__(self, warm_pool: WarmPool, bus: Bus, blobs: Blobs, quarantine: QuarantineStore, clock: Clock) -> None:
        self._warm_pool = warm_pool
        self._blobs = blobs
        self._clock = clock
        self._calls = CallWorker(self._serve, bus=bus, blobs=blobs, quarantine=quarantine, clock=clock, log=log)
        self._imports: list[str] = []

    def introduce(self, instance: str, modules: str) -> None:
        """Say which instance runs the code, and what the code may import."""
        self._calls.instance, self._imports = instance, imports_of(modules)

    async def handle(self, delivery: Delivery) -> None:
        """Run the call's code; ack once the result is in the run's inbox. Raises RetryableError: deliver again."""
        await self._calls.handle(delivery)

    async def _serve(self, call: ToolCall, address: Address) -> dict[str, Any] | None:
        """Return the fields of the call's result; None if it is not wanted any more."""
        if why := impersonation(call, address.sender):
            raise UnreadableMessage(why)
        code = call.arguments.get("code")
        if not isinstance(code, str):
            raise UnreadableMessage("a call without code")
        async with self._warm_pool.lease(call.id) as interpreter:
            if self._warm_pool.is_over(call.id):
                return None
            try:
                return await interpreter.work(self._run(interpreter, call, code))
            finally:
                await interpreter.close()

    async def _run(self, interpreter: RunInterpreter, call: ToolCall, code: str) -> dict[str, Any]:
        request = BlockRequest(
            code=code, authorized_imports=self._imports, final_answer=False, seed=secrets.token_hex()
        )
        outcome: object = None
        for _ in range(_TRIES):
            try:
                session = await interpreter.start()
            except SandboxError as error:
                raise RetryableError(f"code cannot be run here: {error}") from error
            outcome = await session.execute(request)
            if not isinstance(outcome, InterpreterLost):
                break
        if isinstance(outcome, Finished):
            return await self._tool_result(call, outcome)
        why = explain(outcome) if isinstance(outcome, Failed) else "Code execution stopped: its interpreter was lost."
        printed = f"\nIt had printed:\n{outcome.logs}" if isinstance(outcome, Failed) and outcome.logs else ""
        return {"error": ErrorInfo("tool-failed", clip(why + printed, call.output_chars))}

    async def _tool_result(self, call: ToolCall, outcome: Finished) -> dict[str, Any]:
        """Return the output as a text; together with the value if that is, or holds, an image or a table."""
        text, blob = f"Stdout:\n{outcome.logs}\nOutput: {outcome.text or None}", None
        value = await retry(lambda: to_json(outcome.output, self._blobs), self._clock.sleep)
        if (whole := oversized(text, call.output_chars)) is not None:
            blob = await retry(lambda: self._blobs.put(whole), self._clock.sleep)
            text = cut_to_read(whole, blob, call.output_chars)
        if any(not MARKERS.isdisjoint(one) for one in dicts_in(for_people(value))):
            return {"output": {"text": text, "output": value}}
        return {"output": text, "blob": blob}

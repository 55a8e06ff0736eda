"""Calls of the tools that Cadre's own services offer: what is answered, and what is refused."""

import logging
from typing import Any

import pytest
from msgspec.structs import replace

from cadre.delivery.call_worker import CallWorker
from cadre.delivery.codec import encode
from cadre.errors import TerminalError
from cadre.protocol.messages import ErrorInfo, ToolCall, ToolResult
from cadre.protocol.topology import Address
from harness.memory_ports import MemoryBlobs
from harness.texts import holds
from unit.loop.memory_world import MemoryWorld
from unit.test_newer_schema import Delivered
from unit.test_quarantine import MemoryQuarantine

CALL = ToolCall(id="r1_1_0", tree="r1", run="r1", at=1.0, agent="boss", tool="recall", arguments={"query": "x"})
SUBJECT = "cadre.call.0.recall.boss.r1.r1_1_0"


class Service:
    """A service with one tool, which answers as asked."""

    def __init__(self, answer: dict[str, Any] | Exception | None) -> None:
        self._answer = answer
        self.calls: list[ToolCall] = []
        self.answered: list[ToolResult] = []
        self.world = MemoryWorld()
        self.world.clock.time = 50.0
        self._worker = CallWorker(
            self._serve,
            bus=self.world.bus,
            blobs=MemoryBlobs(),
            quarantine=MemoryQuarantine(),
            clock=self.world.clock,
            log=logging.getLogger("test"),
        )
        self._worker.instance, self._worker.on_answer = "memory-1", self.answered.append

    async def handle(self, data: bytes, subject: str = SUBJECT) -> list[object]:
        delivered = Delivered(1, data, subject)
        await self._worker.handle(delivered)
        return delivered.settled

    async def _serve(self, call: ToolCall, address: Address) -> dict[str, Any] | None:
        assert address.leaf == call.id
        self.calls.append(call)
        self.world.clock.time += 2.0
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def sent(self) -> ToolResult:
        (result,) = self.world.bus.sent
        assert isinstance(result, ToolResult)
        assert self.world.stream.inbox[0].agent == "boss"
        return result


async def test_an_answer_goes_to_the_run_that_asked() -> None:
    service = Service({"output": "42"})
    assert await service.handle(encode(CALL)) == ["ack"]
    sent = service.sent()
    assert (sent.id, sent.call, sent.tool, sent.output) == ("r1_1_0:result", "r1_1_0", "recall", "42")
    assert (sent.tree, sent.run, sent.executor) == ("r1", "r1", "memory-1")
    assert (sent.started_at, sent.at) == (50.0, 52.0)
    assert service.answered == [sent]


@pytest.mark.parametrize("output", [{"output": "42"}, {"error": ErrorInfo("tool-failed", "broken")}])
async def test_an_answer_that_nobody_waits_for_is_not_sent(output: dict[str, Any]) -> None:
    service = Service(output)
    assert await service.handle(encode(replace(CALL, reply=False))) == ["ack"]
    assert service.world.bus.sent == []
    assert len(service.answered) == 1


async def test_a_call_without_an_outcome_is_acked() -> None:
    service = Service(None)
    assert await service.handle(encode(CALL)) == ["ack"]
    assert (service.world.bus.sent, service.answered) == ([], [])


@pytest.mark.parametrize(("deadline", "served"), [(49.0, False), (50.0, False), (50.1, True), (None, True)])
async def test_a_call_whose_time_has_passed_is_not_served(deadline: float | None, served: bool) -> None:
    service = Service({"output": "42"})
    assert await service.handle(encode(replace(CALL, deadline=deadline))) == ["ack"]
    assert len(service.calls) == served
    error = service.sent().error
    assert (error is None) is served
    assert error is None or error.type == "DeadlineExceeded"


@pytest.mark.parametrize(
    "data", [b"nonsense", b"[]", b'{"v": 1, "type": "tool.call"}', encode(replace(CALL, tool="x"))]
)
async def test_a_call_that_cannot_be_served_is_answered_all_the_same(data: bytes) -> None:
    service = Service({"output": "42"})
    [reason] = await service.handle(data)
    sent = service.sent()
    assert sent.error is not None
    assert sent.error.code == "poisoned"
    assert holds(sent.error.message, "'recall'", reason)
    assert (sent.id, sent.run, service.calls) == ("r1_1_0:result", "r1", [])


async def test_a_service_may_refuse_a_call() -> None:
    service = Service(TerminalError("not here"))
    assert await service.handle(encode(CALL)) == ["not here"]
    error = service.sent().error
    assert error is not None
    assert error.code == "poisoned"
    assert holds(error.message, "'recall'", "not here")


async def test_nobody_is_told_where_nobody_waits() -> None:
    service = Service(TerminalError("not here"))
    assert await service.handle(encode(replace(CALL, reply=False))) == ["not here"]
    assert await service.handle(b"nonsense", "cadre.call.0.recall.boss.r1.r1") != ["ack"]
    assert service.world.bus.sent == []

"""A kind that raises amid a decision leaves no run that the journal does not tell of."""

from collections.abc import Callable, Iterator

import pytest

from cadre.engine.draft import Draft
from cadre.engine.kind import find_kind
from cadre.journal.arrivals import ModelReplied
from cadre.journal.events import RequestedCall
from cadre.kinds.goals.records import GoalThought
from cadre.kinds.tool_calling.kind import ToolCallingKind
from cadre.protocol.messages import ErrorInfo
from cadre.spec.kinds import declared_kinds
from unit.loop.build import ANSWER, task
from unit.loop.memory_world import MemoryWorld, ScriptedModel
from unit.loop.workers import each_cause_once, says, worker

NAME = "tool_calling"
ADD = RequestedCall("add", {"a": 1, "b": 2})

METHODS: dict[str, Callable[[Draft], None]] = {
    "note": lambda draft: draft.note(GoalThought(step=1, tool="add")),
    "ask": lambda draft: draft.ask("act", 1, attempt=9),
    "call": lambda draft: draft.call([ADD, RequestedCall("nope", {})]),
    "drop": lambda draft: draft.drop("needless"),
    "answer": lambda draft: draft.answer("Too soon."),
    "begin_step": lambda draft: draft.begin_step(2, "another"),
    "end_step": lambda draft: draft.end_step(),
    "stop": lambda draft: draft.stop("error"),
    "wait": lambda draft: draft.wait("pause", draft.at + 60.0),
    "hold": lambda draft: draft.hold("go", "May I?"),
    "give_up": lambda draft: draft.give_up(ErrorInfo("max-steps", "There are no more.")),
}


class Clumsy(ToolCallingKind):
    """Raises behind a method of the draft, the first time that it is asked."""

    method = ""

    def answered(self, draft: Draft, reply: ModelReplied) -> None:
        if method := Clumsy.method:
            Clumsy.method = ""
            draft.call([ADD])
            METHODS[method](draft)
            raise RuntimeError(f"behind {method}")
        super().answered(draft, reply)


CLUMSY = Clumsy()


@pytest.fixture
def clumsy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    declared = declared_kinds()
    with monkeypatch.context() as patch:
        patch.setitem(declared, NAME, declared[NAME]._replace(behavior={1: f"{__name__}:CLUMSY"}))
        find_kind.cache_clear()
        yield
    find_kind.cache_clear()


@pytest.mark.usefixtures("clumsy")
@pytest.mark.parametrize("method", METHODS)
async def test_a_run_whose_kind_has_raised_is_folded_again(method: str) -> None:
    world, Clumsy.method = MemoryWorld(), method
    runner = worker(world, ScriptedModel(says(ANSWER), says(ANSWER)))
    with pytest.raises(RuntimeError, match=method):
        await runner.handle(task())
    assert world.run("r1").model is not None
    assert await runner.handle(task(), deliveries=2)
    assert world.result("r1").output == "42"
    each_cause_once(world)

"""The calls and files that a tool call crosses stay few: who adds a mechanism to the way of every call sees it here."""

from bench.crossing import pure, whole


def test_the_pure_part_of_an_answer_and_its_result_crosses_few_files() -> None:
    crossing = pure()
    assert len(crossing.calls) <= 30
    assert crossing.calls.total() <= 205
    assert crossing.calls["loop/decide.py"] >= 2


async def test_a_tool_call_through_agent_executor_and_back_crosses_few_files() -> None:
    crossing = await whole()
    assert len(crossing.calls) <= 62
    assert crossing.calls["runtime/executor.py"] >= 1
    assert crossing.calls["runtime/journaling.py"] >= 2

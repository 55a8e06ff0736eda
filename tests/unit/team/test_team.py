"""Teams in one process (`cadre.testing.Team`): what a user asserts on in a test of their own."""

import asyncio
import inspect
from pathlib import Path

import pytest

import cadre.client
from cadre import Agent, Limits, ToolContext, tool
from cadre.client import NotFound
from cadre.engine.fold import fold
from cadre.engine.model_request import ModelRequest
from cadre.errors import ModelUnavailable, SetupError
from cadre.journal.events import RequestedCall
from cadre.prompting.prompts import prompts_for
from cadre.protocol.cards import ToolCard
from cadre.protocol.messages import CallerTerms
from cadre.runtime.runner import work_of
from cadre.testing import (
    ModelReply,
    RunCancelled,
    RunFailed,
    ScriptedModel,
    Team,
    TeamRunWaits,
    answer,
    call,
    crash_points,
)
from cadre.testing.pytest_plugin import cadre_team

WRITER = Agent(name="writer", description="Writes.", tools=["count_words"])


@tool(read_only=True)
def count_words(text: str) -> int:
    """Count the words of a text.

    Args:
        text: The text.
    """
    return len(text.split())


async def test_a_run_has_its_answer_and_its_calls() -> None:
    script = [call("count_words", text="red green blue gold"), answer("four")]
    async with Team([WRITER], [count_words], script) as team:
        assert await team.run("writer", "Count: red green blue gold") == "four"
        (made,) = team.calls
    assert (made.agent, made.tool, made.arguments, made.output) == (
        "writer",
        "count_words",
        {"text": "red green blue gold"},
        4,
    )
    assert made.invocations == 1
    first, second = team.requests
    assert first.agent == "writer"
    assert len(second.request.messages) > len(first.request.messages)


async def test_without_a_model_each_tool_is_called_once() -> None:
    async with Team([WRITER], [count_words]) as team:
        assert await team.run("writer", "Count.") == "2"
        assert [one.arguments for one in team.calls] == [{"text": "example text"}]


async def test_members_are_agents_of_the_team() -> None:
    lead = Agent(name="lead", description="Leads.", team=["writer"])
    models = {
        "lead": [call("writer", task="Count 'a b'."), answer("it has two")],
        "writer": lambda request: answer("two") if len(request.messages) > 3 else call("count_words", text="a b"),
    }
    async with Team([lead, WRITER], [count_words], models) as team:
        assert await team.run("lead", "Have it counted.") == "it has two"
        assert [one.agent for one in team.calls] == ["writer"]
        assert len(team.run_ids()) == 2


async def test_a_manager_reads_the_summary_of_its_members_work() -> None:
    lead = Agent(name="lead", description="Leads.", team=["writer"])
    writer = Agent(name="writer", description="Writes.", tools=["count_words"], provide_run_summary=True)
    models = {
        "lead": [call("writer", task="Count 'a b'."), answer("it has two")],
        "writer": [call("count_words", text="a b"), answer("two")],
    }
    async with Team([lead, writer], [count_words], models) as team:
        await team.run("lead", "Have it counted.")
        member = fold(team.journal("run1_1_0"), "run1_1_0", "run1")
        prompts = prompts_for(writer.spec)
        summary = prompts.managed_summary("writer", work_of(member, prompts))
        assert summary in str(team.requests[-1].request.messages[-1]["content"])


async def test_a_failed_run_says_why() -> None:
    agent = Agent(name="tired", description="Fails.", limits=Limits(max_steps=1, seconds=60))
    async with Team([agent], model=[ModelUnavailable("gone", status=401)] * 200) as team:
        with pytest.raises(RunFailed, match="error") as failed:
            await team.run("tired", "Do it.")
        assert RunFailed is cadre.client.RunFailed
        run = failed.value.run
        assert run.error is not None
        assert (run.state, run.agent, run.task, failed.value.kind) == (
            "error",
            "tired",
            "Do it.",
            run.error.type,
        )


async def test_waits_take_no_time() -> None:
    """A rate limit of an hour is skipped."""
    limited = ModelUnavailable("slow down", status=429, retry_after=1800.0, rate_limited=True)
    async with Team([WRITER], model=[limited, answer("in the end")]) as team:
        before = team.now()
        assert await asyncio.wait_for(team.run("writer", "Be patient."), 30) == "in the end"
        assert team.now() - before >= 1800


async def test_what_a_model_raises_reaches_the_test() -> None:
    async with Team([WRITER], model=[]) as team:
        with pytest.raises(AssertionError, match="the script has 0 replies"):
            await team.run("writer", "Say something.")


async def test_a_person_decides() -> None:
    paid: list[float] = []

    @tool(approval="always")
    def pay(amount: float) -> str:
        """Pay an amount."""
        paid.append(amount)
        return "paid"

    clerk = Agent(name="clerk", description="Pays.", tools=["pay"])
    async with Team([clerk], [pay], [call("pay", amount=100.0), answer("done")]) as team:
        run = await team.start("clerk", "Pay the bill.")
        with pytest.raises(TeamRunWaits, match="pay"):
            await run.result()
        assert paid == []
        assert [one.name for one in run.held] == ["pay"]
        await run.correct("", {"amount": 90.0}, feedback="There was a discount.")
        assert await run.result() == "done"
    assert paid == [90.0]


async def test_a_person_refuses_and_cancels() -> None:
    @tool(approval="always")
    def pay(amount: float) -> str:
        """Pay an amount."""
        raise AssertionError("nobody has allowed it")

    clerk = Agent(name="clerk", description="Pays.", tools=["pay"])
    async with Team([clerk], [pay], [call("pay", amount=1.0), answer("not paid"), call("pay", amount=2.0)]) as team:
        refused = await team.start("clerk", "Pay the bill.")
        await refused.reject(feedback="Too dear.")
        assert await refused.result() == "not paid"
        assert "Too dear." in str(team.requests[1].request.messages[-1]["content"])
        cancelled = await team.start("clerk", "Pay the other one.")
        await cancelled.settle()
        before = team.now()
        team.skip(3600)
        assert 3600 <= team.now() - before < 3700
        await cancelled.cancel("Enough.")
        with pytest.raises(RunCancelled, match="Enough"):
            await cancelled.result()
        assert cancelled.is_over
        assert cancelled.held == []
        assert team.dead_letters == []


async def test_files_are_in_the_workspace() -> None:
    @tool
    async def shout(path: str, context: ToolContext) -> str:
        """Make the text of a file loud."""
        text = (await context.workspace.read(path)).text
        await context.workspace.write("loud.txt", text.upper())
        return "done"

    agent = Agent(name="crier", description="Cries.", tools=["shout"])
    async with Team([agent], [shout], [call("shout", path="quiet.txt"), answer("see loud.txt")]) as team:
        run = await team.start("crier", "Shout.", files={"quiet.txt": b"hush"})
        await run.result()
        assert run.files == {"quiet.txt": b"hush", "loud.txt": b"HUSH"}


async def test_whoever_works_for_a_run_with_files_may_search_them() -> None:
    @tool(read_only=True)
    def query_resources(query: str) -> str:
        """Find passages in the files of the run.

        Args:
            query: What is looked for.
        """
        return f"{query}: page 3"

    boss = Agent(name="boss", description="Leads.", team=["reader"])
    reader = Agent(name="reader", description="Reads.")
    scripts = {
        "boss": [call("reader", task="Find the price."), answer("page 3")] * 2,
        "reader": [call("query_resources", query="price"), answer("on page 3")] * 2,
    }
    async with Team([boss, reader], [query_resources], scripts) as team:
        without = await team.start("boss", "Find the price.")
        await without.result()
        of_member = [asked.request for asked in team.requests if asked.agent == "reader"]
        assert "query_resources" not in repr([request.tools for request in of_member])
        assert [made.tool for made in team.calls] == []
        run = await team.start("boss", "Find the price.", files={"offer.md": b"It costs 3."})
        await run.result()
        assert [(made.agent, made.output) for made in team.calls] == [("reader", "price: page 3")]
        for one in [id_ for id_ in team.run_ids() if id_.startswith(run.id)]:
            folded = fold(team.journal(one), one, run.id)
            assert folded.task is not None
            assert (folded.task.has_files, list(folded.tools)) == (True, ["query_resources"])


async def test_an_agent_that_writes_code_runs_it_in_the_real_jail() -> None:
    coder = Agent(name="coder", description="Computes.", kind="code", tools=["count_words"])
    code = "Thought: compute.\n<code>\nn = count_words(text='a b c')\nfinal_answer(n * 14)\n</code>"
    async with Team([coder], [count_words], [code]) as team:
        assert await team.run("coder", "Compute.") == 42


async def test_code_calls_a_function_of_whoever_started_the_run() -> None:
    weather = ToolCard(
        name="weather",
        description="Tells the weather.",
        input_schema={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    )
    coder = Agent(name="coder", description="Computes.", kind="code", tools=["count_words"])
    code = "Thought: ask.\n<code>\nfinal_answer('It is ' + weather(city='Oslo'))\n</code>"
    async with Team([coder], [count_words], [code]) as team:
        run = await team.begin("coder", "How is it?", terms=CallerTerms(tools=[weather]))
        await run.settle()
        assert [(one.name, one.arguments) for one in run.held] == [("weather", {"city": "Oslo"})]
        await run.approve(feedback="3 degrees")
        assert await run.result() == "It is 3 degrees"


async def test_wrong_names_are_told() -> None:
    async with Team([WRITER], model=[]) as team:
        with pytest.raises(NotFound, match=r"'reader'.* writer"):
            await team.run("reader", "Read.")
        with pytest.raises(SetupError, match=r"no process 'tools'"):
            team.kill("tools")
    with pytest.raises(SetupError, match=r"\blead\b.*\bwriter\b"):
        Team([WRITER], model={"lead": []})


async def test_a_process_that_dies_anywhere_repeats_no_effect() -> None:
    effects: list[str] = []

    @tool
    async def book(seat: str) -> str:
        """Book a seat."""
        effects.append(seat)
        return f"{seat} is yours"

    def model(request: ModelRequest) -> ModelReply:
        results = [message for message in request.messages if message.get("role") == "tool"]
        return ModelReply(calls=[answer(results[0]["content"]) if results else call("book", seat="4A")])

    agent = Agent(name="agent", description="Books.", tools=["book"])
    points = 0
    async for outcome in crash_points(lambda: Team([agent], [book], model), lambda team: team.run("agent", "Book.")):
        points += 1
        assert len(effects) <= 1
        if effects:
            assert outcome.value == "4A is yours" or "outcome unknown" in outcome.value
        effects.clear()
        assert [one.invocations for one in outcome.team.calls] in ([0], [1])
        assert len(outcome.team.kills) == (outcome.after > 0)
    assert points >= 6


async def test_an_idempotent_tool_is_run_again_after_a_death() -> None:
    begun: list[int] = []

    @tool(idempotent=True)
    async def save(n: int) -> str:
        """Save a number."""
        begun.append(n)
        if len(begun) == 1:
            team.kill("tools")
            await asyncio.sleep(60)
        return "saved"

    agent = Agent(name="agent", description="Saves.", tools=["save"])
    async with Team([agent], [save], [call("save", n=1), answer("ok")]) as team:
        assert await team.run("agent", "Save.") == "ok"
        (made,) = team.calls
    assert (made.output, made.invocations, begun) == ("saved", 2, [1, 1])


async def test_a_script_is_not_out_of_step_after_a_death() -> None:
    agent = Agent(name="agent", description="Counts.", tools=["count_words"])
    script = [call("count_words", text="a"), call("count_words", text="a b"), answer("both")]
    async for outcome in crash_points(
        lambda: Team([agent], [count_words], ScriptedModel(script)), lambda team: team.run("agent", "Count.")
    ):
        assert outcome.value == "both", outcome.after
        assert [one.output for one in outcome.team.calls] == [1, 2]


async def test_a_manager_and_its_members_survive_every_death() -> None:
    lead = Agent(name="lead", description="Leads.", team=["left", "right"])
    members = [Agent(name=name, description="Counts.", tools=["count_words"]) for name in ("left", "right")]

    def counts(request: ModelRequest) -> RequestedCall:
        results = [message for message in request.messages if message.get("role") == "tool"]
        return answer(results[0]["content"]) if results else call("count_words", text="a b c")

    def leads(request: ModelRequest) -> list[RequestedCall]:
        results = [str(message["content"]) for message in request.messages if message.get("role") == "tool"]
        if not results:
            return [call("left", task="Count."), call("right", task="Count.")]
        return [answer(sum("3" in result for result in results))]

    models = {"lead": leads, "left": counts, "right": counts}
    async for outcome in crash_points(
        lambda: Team([lead, *members], [count_words], models),
        lambda team: team.run("lead", "Have it counted."),
    ):
        assert outcome.value == 2, outcome.after
        assert len(outcome.team.calls) == 2


async def test_code_goes_on_after_the_death_of_its_sandbox() -> None:
    coder = Agent(name="coder", description="Computes.", kind="code", tools=["count_words"])
    code = (
        "Thought: compute.\n<code>\nn = count_words(text='a b c')\nm = count_words(text='a')\n"
        "final_answer(n * 10 + m)\n</code>"
    )
    async with Team([coder], [count_words], [code]) as team:
        run = await team.start("coder", "Compute.")
        while not team.calls:
            await team.changed()
        team.kill("sandbox default")
        assert await run.result() == 31
        assert [one.output for one in team.calls] == [3, 1]


async def test_the_fixture_finds_what_was_overlooked() -> None:
    agent = Agent(name="a", description="Answers.")
    for left in ([], [answer("no")]):
        fixture = inspect.unwrap(cadre_team)()
        async with next(fixture)([agent], model=[answer("yes"), *left]) as team:
            assert await team.run("a", "Well?") == "yes"
        if left:
            with pytest.raises(pytest.fail.Exception, match=r"^1 "):
                next(fixture)
        else:
            assert next(fixture, None) is None


async def test_people_steer_a_run(tmp_path: Path) -> None:
    clerk = Agent(name="clerk", description="Pays.", tools=["count_words"], approvals={"*": "always"})
    script = ScriptedModel([call("count_words", text="a b"), answer("two")])
    async with Team([clerk], [count_words], script) as team:
        run = await team.start("clerk", "Count.")
        await run.settle()
        await run.tell("Be brief.")
        await run.approve()
        assert await run.result() == "two"
        assert "Be brief." in str(team.requests[1].request.messages)

    (tmp_path / "shop.yaml").write_text(
        "apiVersion: cadre.dev/v1\nkind: Agent\nmetadata: {name: shop}\nspec:\n  description: Waits.\n"
        "  kind: workflow\n  workflow:\n    start: paid\n    steps:\n"
        "      paid: {wait: {signal: paid}, next: done}\n"
        '      done: {end: "{{ paid.payload.sum }}"}\n'
    )
    async with Team([tmp_path / "shop.yaml"]) as team:
        run = await team.start("shop", "Sell.")
        with pytest.raises(TeamRunWaits):
            await run.result()
        assert not run.has_editable
        with pytest.raises(TeamRunWaits):
            run.editable()
        await run.signal("paid", {"sum": 12})
        assert await run.result() == 12

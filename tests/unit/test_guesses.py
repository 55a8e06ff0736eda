"""Agents, tools and tests as people write them who have read no page, by the habits of other libraries.

Each test is such a guess. It works as it stands, or is refused with the word that helps: nothing is dropped in silence.
The guesses about a client of a gateway are in `tests/e2e/test_client_guesses.py`.
"""

import asyncio
import inspect
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

import cadre
from cadre import (
    Agent,
    AsyncClient,
    Budget,
    Client,
    Limits,
    ModelSpec,
    Schedule,
    Team,
    ToolContext,
    ToolError,
    serve,
    tool,
)
from cadre.client import InvalidRequest
from cadre.errors import ModelUnavailable, SetupError, SpecError, ToolDefinitionError, UnknownOption
from cadre.local.team_check import check_files
from cadre.testing import FunctionModel, ScriptedModel, TestModel, answer, call
from cadre.tool import InvalidArguments


class Person(BaseModel):
    name: str
    age: int


def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


def said(refusal: pytest.ExceptionInfo[BaseException], *words: str) -> bool:
    return all(word in str(refusal.value) for word in words)


# --- agents


def test_an_agent_runs_in_this_process() -> None:
    run = Agent("writer", model=[answer("hello")], instructions="Write.").run_sync("Say hello")
    assert (run.output, run.state) == ("hello", "success")
    assert run.usage.total_tokens == 11


async def test_an_agent_runs_where_a_loop_runs() -> None:
    writer = Agent(name="writer", model=ScriptedModel([answer("hello")]), instructions="Write.")
    assert (await writer.run("Say hello")).output == "hello"
    with pytest.raises(RuntimeError):
        writer.run_sync("Say hello")


def test_the_type_of_its_answers() -> None:
    agent = Agent("extract", output_type=Person, model=[answer({"name": "Ada", "age": 36})])
    assert agent.run_sync("Who?").output == Person(name="Ada", age=36)
    with Team([agent], model=[answer({"name": "Ada", "age": 36})]) as team:
        assert team.run("extract", "Who?") == Person(name="Ada", age=36)


def test_the_type_of_one_answer_constrains_that_run() -> None:
    plain = Agent("plain", model=[answer("old"), answer(36)])
    run = plain.run_sync("How old?", output_type=int)
    assert run.output == 36
    assert run.run.spec is not None
    assert run.run.spec.output_schema == {"type": "integer"}


def test_mappings_as_in_a_file() -> None:
    agent = Agent(
        "writer",
        instructions="Be brief.",
        model={"name": "gpt-4o-mini", "temperature": 0.2, "max_tokens": 200},
        limits={"max_steps": 5, "seconds": "10m", "budget": {"cost": 0.5}},
    )
    assert agent.spec.model == ModelSpec(name="gpt-4o-mini", temperature=0.2, max_tokens=200)
    assert agent.spec.limits == Limits(max_steps=5, seconds=600.0, budget=Budget(cost=0.5))
    assert Agent("a", model="gpt-4o-mini").spec.model == ModelSpec(name="gpt-4o-mini")


@pytest.mark.parametrize(
    ("options", "meant"),
    [
        ({"system_prompt": "Be brief."}, "instructions"),
        ({"temperature": 0.2}, "model={'temperature'"),
        ({"max_steps": 3}, "limits={'max_steps'"),
        ({"budget": Budget(cost=1)}, "limits={'budget'"),
        ({"handoffs": []}, "team"),
        ({"toolz": []}, "tools"),
        ({"deps_type": str}, "it takes name, instructions"),
        ({"limits": {"max_turns": 3}}, "max_steps"),
        ({"limits": {"budget": {"usd": 3}}}, "cost"),
        ({"model": {"temprature": 3}}, "temperature"),
    ],
)
def test_an_option_that_agents_lack(options: dict[str, Any], meant: str) -> None:
    with pytest.raises(UnknownOption) as refused:
        Agent("a", **options)
    assert isinstance(refused.value, TypeError)
    assert said(refused, meant)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"permission": "ask", "tools": ["publish"]}, "permission"),
        ({"model": {"temperature": "hot"}}, "ModelSpec.temperature"),
        ({"model": "openai:gpt-4o-mini"}, "model"),
        ({"model": 5}, "model"),
        ({"limits": {"budget": 0.5}}, "Limits.budget"),
        ({"tools": [3]}, "tools[0]"),
        ({"instructions": lambda context: "Be brief."}, "instructions"),
        ({"checks": [add]}, "checks"),
        ({"model": {"extra_body": {"x": add}}}, "ModelSpec.extra_body"),
        ({"tools": [lambda text: text]}, "tools[0]"),
        ({"approvals": {"add": True}, "tools": [add]}, "approvals"),
        ({"timeouts": {"add": "soon"}, "tools": [add]}, "timeouts[...]"),
        ({"output_type": type(add)}, "output_type"),
    ],
)
def test_a_value_that_no_file_could_have(options: dict[str, Any], key: str) -> None:
    with pytest.raises(SpecError) as refused:
        Agent("a", **options)
    assert refused.value.key == key
    assert "agent a: " in str(refused.value) or not refused.value.agent


def test_a_function_is_a_tool() -> None:
    agent = Agent("calc", tools=[add], model=[call("add", {"a": 1, "b": 2}), answer("3")])
    assert [one.name for one in agent.tools] == ["add"]
    with Team([agent]) as team:
        assert team.run("calc", "1 + 2?") == "3"
        assert [made.output for made in team.calls] == [3]
    with pytest.raises(AttributeError, match="tools="):
        agent.tool  # type: ignore[attr-defined]  # noqa: B018


def test_agents_are_a_team() -> None:
    writer = Agent("writer", model=[answer("a line")])
    boss = Agent("boss", team=[writer], model=[call("writer", task="Write a line."), answer("done")])
    assert boss.run_sync("Write a line.").output == "done"
    assert boss.spec.team == ["writer"]
    with pytest.raises(SpecError) as twice:
        Agent("boss", team=[writer, Agent("sub", team=[Agent("writer")])]).everybody()
    assert twice.value.agent == "writer"


def test_a_budget_in_dollars_is_a_cost() -> None:
    assert cadre.Budget(cost=0.50, tokens=10_000).tokens == 10_000
    with pytest.raises(UnknownOption, match="'cost'"):
        Budget(usd=0.5)  # type: ignore[call-arg]


async def test_events_of_a_run() -> None:
    async with Team([Agent("a", model=[answer("one")])]) as team:
        run = await team.start("a", "x")
        seen = [event.type async for event in run.stream()]
    assert (seen[0], seen[-1]) == ("run.accepted", "end")


def test_events_of_a_run_without_a_loop() -> None:
    with Team([Agent("a", model=[answer("one")])]) as team:
        assert [event.type for event in team.start("a", "x")][-2:] == ["run.finished", "end"]


def test_a_team_file(tmp_path: Path) -> None:
    (tmp_path / "boss.yaml").write_text(
        "apiVersion: cadre.dev/v1\nkind: Agent\nmetadata: {name: boss}\nspec: {description: Leads.}\n"
    )
    (tmp_path / "team.yaml").write_text(
        "apiVersion: cadre.dev/v1\nkind: Team\nmetadata: {name: t}\nspec: {agents: [boss.yaml]}\n"
    )
    with Team.from_file(tmp_path / "team.yaml", {"boss": [answer("done")]}) as team:
        assert team.run("boss", "Write a line") == "done"
    with pytest.raises(SetupError, match="from_file"):
        Team(str(tmp_path / "team.yaml"))


def test_serve_takes_no_address(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnknownOption, match="gateway"):
        serve([Agent("a")], host="127.0.0.1", port=8799)  # type: ignore[call-arg]
    with pytest.raises(SystemExit):
        serve([Agent("a", model=[answer("x")])])
    assert "test double" in capsys.readouterr().err


def test_a_schedule_by_its_keys() -> None:
    assert Schedule("daily", agent=Agent("a"), task="Sum up.", every=timedelta(hours=1)).spec.every == 3600.0
    with pytest.raises(UnknownOption, match="'every'"):
        Schedule("daily", agent="a", task="x", evry="1h")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("module", "name", "ours"),
    [
        ("cadre", "Tool", "tool"),
        ("cadre", "function_tool", "tool"),
        ("cadre", "get_client", "AsyncClient"),
        ("cadre", "NotFoundError", "cadre.client.NotFound"),
        ("cadre", "Delta", "cadre.events import"),
        ("cadre", "ScriptedModel", "cadre.testing import"),
        ("cadre.client", "Agent", "import Agent"),
        ("cadre.events", "Client", "import Client"),
        ("cadre.testing", "TestClient", "with Team"),
        ("cadre.testing", "TestEnvironment", "team.skip(seconds)"),
        ("cadre.testing", "capture_run_messages", "team.requests"),
        ("cadre.tool", "RunContext", "ToolContext"),
    ],
)
def test_an_import_of_a_name_that_is_elsewhere(module: str, name: str, ours: str) -> None:
    with pytest.raises(ImportError) as refused:
        exec(f"from {module} import {name}", {})
    assert ours in str(refused.value)
    assert not hasattr(sys.modules[module], name)
    with pytest.raises(AttributeError, match=name):
        getattr(sys.modules[module], name)


@pytest.mark.parametrize(
    ("cls", "name", "meant"),
    [
        (Client, "connect", "Client(url"),
        (Agent, "as_tool", "team=[agent]"),
        (Team, "start_time_skipping", "skip"),
        (type(tool(add)), "from_function", "tool(function)"),
        (ToolContext, "report_progress", "progress(text)"),
    ],
)
def test_an_attribute_that_a_class_lacks(cls: type, name: str, meant: str) -> None:
    with pytest.raises(AttributeError) as missing:
        getattr(cls, name)
    assert meant in str(missing.value)


def test_a_word_of_another_library_comes_before_what_is_missing() -> None:
    with pytest.raises(UnknownOption, match="'description'"):
        Agent(role="Writer", goal="Write", backstory="You write.")  # type: ignore[call-arg]
    with pytest.raises(UnknownOption, match="instructions='You write"):
        Agent("writer", "You write.")  # type: ignore[call-arg]
    with pytest.raises(UnknownOption, match="'seconds'"):
        Agent("writer", timeout=60)
    with pytest.raises(UnknownOption, match="text"):
        ToolError("gone", code="x")  # type: ignore[call-arg]
    with pytest.raises(UnknownOption, match="answer"):
        TestModel(custom_output_text="hi")  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ["RunContext", "ModelRetry", "SyncClient", "function_tool"])
def test_names_of_other_libraries_lead_to_ours(name: str) -> None:
    with pytest.raises(AttributeError) as missing:
        getattr(cadre, name)
    assert any(f"({ours})" in str(missing.value) for ours in cadre.__all__)
    assert not hasattr(cadre, name)
    assert {*cadre.__all__} <= {*dir(cadre)}


def test_the_example_of_a_team_in_python_holds() -> None:
    example = Path(__file__).parents[2] / "examples" / "python_team" / "app.py"
    assert check_files(example) == []


# --- tools


def test_a_tool_says_what_it_is() -> None:
    sum_ = tool(name="sum", description="Add.")(add)
    assert (sum_.name, sum_.description, sum_(1, 2)) == ("sum", "Add.", 3)
    assert sum_.input_schema["required"] == ["a"]
    with pytest.raises(AttributeError, match="input_schema"):
        sum_.parameters  # type: ignore[attr-defined]  # noqa: B018


@dataclass
class Item:
    name: str
    amount: int = 1


async def test_types_and_bounds_of_arguments() -> None:
    @tool
    def order(
        items: list[Item],
        who: Person,
        how: Literal["fast", "slow"],
        note: Annotated[str, Field(max_length=20, description="A remark.")] = "",
    ) -> Person:
        """Order."""
        return who

    assert order.input_schema["properties"]["note"]["maxLength"] == 20
    assert order.output_schema is not None
    given = {"items": [{"name": "tea"}], "who": {"name": "Ada", "age": 36}, "how": "fast"}
    assert await order.call(given) == Person(name="Ada", age=36)
    with pytest.raises(InvalidArguments, match="how"):
        await order.call({**given, "how": "now"})


async def test_the_context_of_a_call() -> None:
    @tool
    async def who(ctx: ToolContext, greeting: str) -> str:
        """Greet."""
        with pytest.raises(AttributeError, match=r"\(run\)"):
            ctx.run_id  # type: ignore[attr-defined]  # noqa: B018
        return f"{greeting} {ctx.run}"

    assert await who.call({"greeting": "hello"}, ToolContext(run="r1")) == "hello r1"


def test_a_tool_s_error_is_what_the_model_reads() -> None:
    def lookup(q: str) -> str:
        """Look up."""
        raise ToolError("q must be longer")

    agent = Agent("a", tools=[lookup], model=[call("lookup", q="x"), answer("done")])
    with Team([agent]) as team:
        team.run("a", "x")
        read = team.requests[-1].request.messages[-1]["content"]
        (made,) = team.calls
    assert made.error is not None
    assert (made.error.code, made.error.message) == ("tool-failed", "q must be longer")
    assert "with arguments" not in str(read)


@pytest.mark.parametrize(
    ("options", "meant"),
    [
        ({"requires_approval": True}, "approval='always'"),
        ({"rate_limit": "10/m"}, "concurrency"),
        ({"retry_policy": {}}, "ToolError"),
        ({"bind": True}, "ToolContext"),
        ({"args_schema": Item}, "hints"),
        ({"approval": True}, "'always'"),
        ({"max_retries": 2}, "ToolError"),
        ({"timout": 2}, "'timeout'"),
        ({"timeout": "soon"}, "timeout"),
    ],
)
def test_an_option_that_tools_lack(options: dict[str, Any], meant: str) -> None:
    with pytest.raises(ToolDefinitionError) as refused:
        tool(**options)(add)
    assert said(refused, meant)


def test_the_timeout_of_a_tool() -> None:
    assert tool(timeout=timedelta(minutes=5), idempotent=True)(add).timeout == 300.0


# --- tests


def test_a_script_that_ends_says_what_it_lacks() -> None:
    with (
        Team([Agent("a")], model=ScriptedModel(["one"])) as team,
        pytest.raises(AssertionError, match="answer"),
    ):
        team.run("a", "x")


def test_an_error_that_no_endpoint_raises_is_no_reply() -> None:
    with (
        Team([Agent("a")], model=[TimeoutError("slow")]) as team,
        pytest.raises(AssertionError, match="ModelUnavailable"),
    ):
        team.run("a", "x")


def test_a_model_for_tests_in_place_of_the_agent_s_own() -> None:
    with Team([Agent("a", model="gpt-4o-mini")], model=TestModel()) as team:
        assert isinstance(team.run("a", "x"), str)


def test_a_function_as_a_model() -> None:
    agent = Agent("a", model=FunctionModel(lambda request: answer("hi " + request.messages[-1]["role"])))
    assert agent.run_sync("x").output == "hi user"
    with pytest.raises(TypeError):
        FunctionModel(lambda messages, info: "hi")  # type: ignore[arg-type,misc]


def test_an_agent_that_is_never_asked_needs_no_model() -> None:
    writer = Agent("writer", tools=[add])
    with Team([Agent("boss", team=[writer])], model={"boss": [answer("done")]}) as team:
        assert team.run("boss", "x") == "done"
        with pytest.raises(AssertionError, match="writer"):
            team.run("writer", "x")


def test_a_session_goes_on_and_can_be_reset() -> None:
    with Team([Agent("a")], model=[answer("one"), answer("two"), answer("three")]) as team:
        for options in ({}, {}, {"reset": True}):
            team.run("a", "Remember me.", session="s", **options)  # type: ignore[arg-type]
        lengths = [len(asked.request.messages) for asked in team.requests]
    assert lengths[1] > lengths[0] == lengths[2]


def pay(amount: float, to: str = "Ada") -> str:
    """Pay an amount."""
    return f"{amount} to {to}"


PAYER = Agent("p", tools=[pay], approvals={"pay": "always"})


def test_a_person_s_words() -> None:
    script = [call("pay", amount=1.5, to="Bob"), answer("done")]
    with Team([PAYER], model=script) as team:
        run = team.start("p", "x")
        with pytest.raises(InvalidRequest):
            run.correct("", {"amnt": 2.0})
        with pytest.raises(UnknownOption, match="feedback"):
            run.approve(comment="fine")  # type: ignore[call-arg]
        assert run.state == "waiting"
        run.correct("", {"amount": 2.0}, feedback="less")
        assert run.wait().output == "done"
        assert [made.output for made in team.calls] == ["2.0 to Bob"]
    with Team([PAYER], model=script, approve="all") as team:
        assert team.run("p", "x") == "done"
    with pytest.raises(UnknownOption):
        Team([PAYER], auto_approve=True)  # type: ignore[call-arg]


def test_deadlines_and_timeouts_of_a_team() -> None:
    busy = [ModelUnavailable("busy", retry_after=30.0)] * 20
    with Team([Agent("a")], model=busy) as team:
        run = team.start("a", "x", deadline=60)
        with pytest.raises(TimeoutError):
            run.wait(timeout=timedelta(seconds=5))
        assert not run.is_over
        began = team.now()
        assert run.wait().state == "error"
        assert 50 < team.now() - began < 120


def test_a_module_of_tools_is_patched_where_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop_tools.py").write_text(
        'from cadre import tool\nREAL = "real"\n@tool\ndef buy() -> str:\n    "Buy."\n    return REAL\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    import shop_tools  # type: ignore[import-not-found]

    monkeypatch.setattr(shop_tools, "REAL", "patched")
    buyer = Agent("b", tools=["buy"])
    with Team([buyer], [shop_tools], [call("buy"), answer("x")]) as team:
        team.run("b", "x")
        assert [made.output for made in team.calls] == ["patched"]
    with pytest.warns(UserWarning, match="shop_tools"):
        Team([buyer], [tmp_path / "shop_tools.py"])
    del sys.modules["shop_tools"]


# --- what a notebook and a type checker see


@pytest.mark.parametrize("of", [Client.start, Client.run, Client.runs, Team.start, Agent.run_sync])
def test_signatures_name_every_option(of: Any) -> None:
    parameters = inspect.signature(of).parameters.values()
    assert [one.name for one in parameters if one.kind is one.VAR_KEYWORD] == []
    assert len([*parameters]) > 8


def test_a_client_names_what_it_lacks() -> None:
    client = Client("http://127.0.0.1:1", api_key="k")
    for call_, meant in (
        (lambda: client.start("w", "t", sesion="s"), "'session'"),  # type: ignore[call-arg]
        (lambda: client.start("w", "t", metadata={}), "'labels'"),  # type: ignore[call-arg]
        (lambda: client.start("w"), "task"),  # type: ignore[call-arg]
        (lambda: Client(base_url="x"), "'url'"),  # type: ignore[call-arg]
        (lambda: client.attach("r").wait(timeoutt=3), "'timeout'"),  # type: ignore[call-arg]
        (lambda: client.runs(status="completed"), "'state'"),  # type: ignore[call-arg]
        (lambda: client.start("w", "t", budget={"usd": 1}), "'cost'"),
        (lambda: client.start("w", "t", timeout=5), "deadline"),  # type: ignore[call-arg]
        (lambda: client.start("w", "t", model="gpt-4o"), "agent"),  # type: ignore[call-arg]
    ):
        with pytest.raises(UnknownOption) as refused:
            call_()
        assert said(refused, meant)
    for options, key in (
        ({"budget": 0.5}, "budget"),
        ({"labels": ["a"]}, "labels"),
        ({"inputs": "x"}, "inputs"),
        ({"files": "a.txt"}, "files"),
        ({"images": "a.png"}, "images"),
        ({"agent": Agent("w")}, "agent"),
    ):
        given: dict[str, Any] = {"agent": "w", "task": "t", **options}
        with pytest.raises(SpecError) as wrong:
            client.start(**given)
        assert wrong.value.key == key
    with pytest.raises(AttributeError, match="session="):
        client.sessions  # type: ignore[attr-defined]  # noqa: B018
    client.close()


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [
        ("client.runs.create(agent='w', input='x')", "start(agent, task)"),
        ("client.runs.list(limit=3)", "runs(limit="),
        ("client.runs.retrieve('r1')", "get_run(id)"),
        ("client.runs.cancel('r1')", "attach(id).cancel()"),
        ("client.runs.stream(agent='w')", "stream()"),
        ("client.approvals.list(run_id='r1')", "approvals(run="),
        ("client.agents.create(name='w')", "cadre up"),
        ("client.schedules.create(name='w')", "put_schedule(name, spec)"),
        ("client.chat.completions.create(model='w', messages=[])", "/v1"),
        ("client.responses.create(model='w', input='x')", "/v1"),
        ("client.completions.create(model='w')", "/v1"),
        ("client.beta.threads.create()", "session=NAME"),
        ("client.threads.create()", "session=NAME"),
        ("client.models.list()", "agents()"),
        ("client.get_workflow_handle('r1')", "attach(id)"),
        ("client.post('/v1/runs')", "request('POST'"),
        ("client.attach('r1').get(timeout=3)", "result()"),
        ("client.attach('r1').ready()", "finished"),
    ],
)
async def test_the_calls_of_other_clients_lead_to_ours(wanted: str, meant: str) -> None:
    async with AsyncClient("http://127.0.0.1:1") as client:
        for one in (client, Client):
            made = one("http://127.0.0.1:1") if one is Client else one
            with pytest.raises(AttributeError) as refused:
                eval(wanted, {"client": made})
            assert meant in str(refused.value)


async def test_a_client_of_the_other_kind_is_named() -> None:
    with pytest.raises(TypeError, match="with"):
        async with Client("http://127.0.0.1:1"):  # type: ignore[attr-defined]
            pass
    async with AsyncClient("http://127.0.0.1:1") as client:
        with pytest.raises(TypeError, match="result"):
            await client.attach("r1")  # type: ignore[misc]
        with pytest.raises(TypeError, match="async for"):
            list(client.attach("r1"))  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="async with"), AsyncClient("http://127.0.0.1:1"):  # type: ignore[attr-defined]
        pass


def test_a_team_is_opened_first() -> None:
    with pytest.raises(RuntimeError, match="with Team"):
        Team([Agent("a")]).run("a", "x")  # type: ignore[unused-coroutine]


async def test_a_blocking_team_is_refused_where_a_loop_runs() -> None:
    with pytest.raises(RuntimeError), Team([Agent("a")]):
        pass
    assert asyncio.get_running_loop().is_running()

"""Tests of who of those that are there a model may call."""

import pytest

from cadre.engine.toolset import offered_cards, toolset_of
from cadre.protocol.cards import AgentCard, Presence, ToolCard
from cadre.spec.agent import AgentSpec, Limits, Selector


def agent(name: str, version: str = "", started: float = 1.0, **labels: str) -> Presence:
    card = AgentCard(name=name, description=f"{name} {version}", version=version, labels=labels)
    return Presence(instance=f"{name}-{started}", host="h", pid=1, started_at=started, agent=card)


def tool(name: str, version: str = "", started: float = 1.0) -> Presence:
    card = ToolCard(name=name, description="Does.", input_schema={"type": "object"}, version=version)
    return Presence(instance=f"{name}-{started}", host="h", pid=1, started_at=started, tool=card)


def boss(*team: str | Selector, tools: tuple[str, ...] = (), cycles: int = 0) -> AgentSpec:
    return AgentSpec(name="boss", description="Leads.", team=[*team], tools=[*tools], limits=Limits(cycles=cycles))


def test_members_are_found_by_name_and_by_all_their_labels() -> None:
    there = [agent("a"), agent("b", field="law", rank="1"), agent("c", field="law"), agent("d")]
    toolset = toolset_of(boss("a", Selector({"field": "law", "rank": "1"}), "gone"), there)
    assert (list(toolset.members), toolset.missing) == (["a", "b"], ["gone"])


def test_of_several_replicas_the_newest_version_counts() -> None:
    there = [agent("a", "2", 1.0), agent("a", "1", 9.0), agent("a", "2", 3.0)]
    assert toolset_of(boss("a"), there).members["a"].description == "a 2"


@pytest.mark.parametrize("started", [1.0, 9.0])
def test_versions_are_compared_by_their_numbers(started: float) -> None:
    there = [agent("a", "1.9.0", started), agent("a", "1.10.0", 5.0)]
    there += [tool("t", "1.10.0", 5.0), tool("t", "1.10.0-rc.2", started)]
    toolset = toolset_of(boss("a", tools=("t",)), there)
    assert (toolset.members["a"].version, toolset.tools["t"].version) == ("1.10.0", "1.10.0")
    assert offered_cards(there)["t"].version == "1.10.0"


def test_an_agent_calls_itself_only_when_named() -> None:
    me = agent("boss", field="law")
    assert toolset_of(boss(Selector({"field": "law"})), [me]).members == {}
    assert list(toolset_of(boss("boss", cycles=1), [me]).members) == ["boss"]


def test_a_tool_keeps_its_name_from_a_member_found_by_label() -> None:
    toolset = toolset_of(
        boss(Selector({"field": "law"}), tools=("search",)), [tool("search"), agent("search", field="law")]
    )
    assert (list(toolset.tools), list(toolset.members)) == (["search"], [])


def test_no_member_takes_the_name_of_the_final_answer() -> None:
    assert toolset_of(boss(Selector({"x": "1"})), [agent("final_answer", x="1")]).members == {}


def test_files_can_be_searched_wherever_a_memory_service_is_and_nothing_else_changes() -> None:
    there = [agent("a"), tool("query_resources"), tool("add")]
    toolset = toolset_of(boss("a", tools=("add",)), there)
    assert (list(toolset.tools), toolset.missing) == (["add"], [])
    assert toolset.with_files is not None
    assert list(toolset.with_files.tools) == ["add", "query_resources"]
    assert (toolset.with_files.members, toolset.with_files.missing) == (toolset.members, toolset.missing)
    # Without such a service, and where the agent names the tool itself, files change nothing.
    assert toolset_of(boss("a", tools=("add",)), [agent("a"), tool("add")]).with_files is None
    assert toolset_of(boss(tools=("query_resources",)), there).with_files is None
    member = agent("query_resources")
    assert toolset_of(boss("query_resources"), [member, *there]).with_files is None

"""Replicas of an agent in one version that were started from different files are found."""

from pathlib import Path

import msgspec
import pytest

from cadre.engine.toolset import toolset_of
from cadre.prompting.prompt_file import locate
from cadre.prompting.prompts import prompts_for
from cadre.protocol.cards import AgentCard, Presence, ToolCard
from cadre.service.revision import differing_replicas, revision_of, schemas_of
from cadre.spec.agent import AgentSpec
from cadre_gateway.reading.directory import agents, tools
from harness.texts import holds
from unit.played_gateway import cadre, playing

SPEC = AgentSpec(name="a", description="Works.")


def replica(instance: str, revision: str, version: str = "1", name: str = "a") -> Presence:
    card = AgentCard(name=name, description="", version=version)
    return Presence(instance=instance, host="h", pid=1, started_at=1.0, agent=card, revision=revision)


def of(spec: AgentSpec) -> str:
    return revision_of(spec, prompts_for(spec))


def test_a_revision_is_that_of_spec_and_prompts_wherever_they_lie(tmp_path: Path) -> None:
    shipped = locate("tool_calling").read_bytes()
    other = shipped.replace(b"You are", b"You now are", 1)
    files = [tmp_path / name for name in ("a.yaml", "b.yaml", "c.yaml")]
    for file, text in zip(files, (shipped, shipped + b"\n# A comment is no text.\n", other), strict=True):
        file.write_bytes(text)
    found = [of(msgspec.structs.replace(SPEC, prompts=str(file))) for file in files]
    assert found[0] == found[1] == of(SPEC) != found[2]
    assert of(msgspec.structs.replace(SPEC, instructions="Be brief.")) != of(SPEC)
    assert len(of(SPEC)) == 12


def test_the_schemas_of_tools_have_a_digest_of_their_own() -> None:
    add = ToolCard(name="add", description="Adds.", input_schema={"type": "object"})
    look = ToolCard(name="look", description="Looks.", input_schema={"type": "object"})
    cards = {"add": add, "look": look}
    found = schemas_of(cards, ["add", "look", "absent"])
    assert len(found) == 12
    assert found == schemas_of(cards, ["look", "add"])
    later = msgspec.structs.replace(add, version="2", labels={"a": "b"})
    assert found == schemas_of(cards | {"add": later}, ["add", "look"])
    for changed in ({"description": "Sums."}, {"input_schema": {"type": "null"}}, {"approval": "always"}):
        other = msgspec.structs.replace(add, **changed)
        assert found != schemas_of(cards | {"add": other}, ["add", "look"])
    assert schemas_of(cards, ["absent"]) == ""


def test_the_card_that_agents_are_offered_is_the_one_that_is_shown() -> None:
    def executor(description: str, version: str, started_at: float) -> Presence:
        card = ToolCard(name="add", description=description, input_schema={"type": "object"}, version=version)
        return Presence(instance=description, host="h", pid=1, started_at=started_at, tool=card)

    replicas = [executor("of version 2", "2", 1.0), executor("of version 1, begun later", "1", 2.0)]
    [shown] = tools(replicas)
    offered = toolset_of(AgentSpec(name="a", description="Adds.", tools=["add"]), replicas).tools["add"]
    assert (shown.description, offered.description) == ("of version 2", "of version 2")
    worker = Presence(
        instance="w",
        host="h",
        pid=1,
        started_at=1.0,
        agent=AgentCard(name="a", description="Adds.", tools=["add"]),
    )
    (listed,) = agents([*replicas, worker], {})
    assert listed.schemas == schemas_of({"add": offered}, ["add"]) != ""


def test_only_replicas_of_one_version_must_agree() -> None:
    own = replica("own", "aa")
    assert own.agent is not None
    others = [
        replica("b", "bb"),
        replica("c", "aa"),
        replica("d", "cc", version="2"),
        replica("e", ""),
        replica("f", "bb", name="x"),
    ]
    assert [one.instance for one in differing_replicas(own.agent, "aa", [own, *others])] == ["b"]
    found = {agent.name: agent.differing for agent in agents([own, *others], {})}
    assert found == {"a": ["aa", "bb"], "x": []}


def test_they_are_told_of_by_ps(monkeypatch: pytest.MonkeyPatch) -> None:
    with playing(monkeypatch) as gateway:
        live = msgspec.to_builtins(agents([replica("a", "aa"), replica("b", "bb")], {}))
        gateway.answer("GET /v1/agents", {"agents": live})
        gateway.answer("GET /v1/tools", {"tools": []})
        gateway.answer("GET /v1/sandboxes", {"sandboxes": []})
        done = cadre("ps")
    assert "aa, bb" in done.stdout
    assert done.stderr.startswith("cadre: ")
    assert holds(done.stderr, "agent a ", "(aa, bb)", "`cadre rollout`")

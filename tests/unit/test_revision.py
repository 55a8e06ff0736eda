"""Replicas of an agent in one version that were started from different files are found."""

from pathlib import Path

import msgspec
import pytest

from cadre.prompting.prompt_file import locate
from cadre.prompting.prompts import prompts_for
from cadre.protocol.cards import AgentCard, Presence
from cadre.service.revision import differing_replicas, revision_of
from cadre.spec.agent import AgentSpec
from cadre_gateway.reading.directory import agents
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
    assert done.stderr.startswith("cadre: replicas of agent a differ in spec or prompts (aa, bb): ")

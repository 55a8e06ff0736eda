"""The flowchart of an agent that stands for another names where that is."""

import pytest

from cadre.kinds.remote.kind import graph_of
from cadre.kinds.remote.records import RemoteSection
from cadre.spec.agent import AgentSpec
from cadre.spec.kinds import sections
from cadre.spec.remote_agent import NatsAgentSpec, ProgramSpec


@pytest.mark.parametrize(
    ("section", "named"),
    [
        (RemoteSection(card="http://far.example/card.json"), "http://far.example/card.json"),
        (RemoteSection(url="http://far.example"), "http://far.example"),
        (RemoteSection(program=ProgramSpec(command=["coder", "--acp"], workspace="work")), "coder"),
        (RemoteSection(nats=NatsAgentSpec(agent="stock", owner="ann", session="work")), "stock/ann/work"),
    ],
)
def test_it_names_where_the_agent_is(section: RemoteSection, named: str) -> None:
    spec = AgentSpec(name="far", description="Far.", kind="remote", **sections(section))
    assert f'    remote[["far<br/>{named}"]]' in graph_of(spec)

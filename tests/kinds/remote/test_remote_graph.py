"""The flowchart of an agent that stands for another names where that is."""

import pytest

from cadre.kinds.remote.graph import graph_of
from cadre.spec.agent import AgentSpec, sections
from cadre.spec.remote_agent import NatsAgentSpec, ProgramSpec, RemoteSpec


@pytest.mark.parametrize(
    ("section", "named"),
    [
        (RemoteSpec(card="http://far.example/card.json"), "http://far.example/card.json"),
        (RemoteSpec(url="http://far.example"), "http://far.example"),
        (RemoteSpec(program=ProgramSpec(command=["coder", "--acp"], workspace="work")), "coder"),
        (RemoteSpec(nats=NatsAgentSpec(agent="stock", owner="ann", session="work")), "stock/ann/work"),
    ],
)
def test_it_names_where_the_agent_is(section: RemoteSpec, named: str) -> None:
    spec = AgentSpec(name="far", description="Far.", kind="remote", **sections(section))
    assert f'    remote[["far<br/>{named}"]]' in graph_of(spec)

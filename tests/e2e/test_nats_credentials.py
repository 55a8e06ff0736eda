"""A NATS server whose users an operator has signed: files of credentials serve wherever those of keys do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest
from synadia_ai.agents import Agents, DiscoverFilter, Identity, ResponseChunk, signer_from_seed

from cadre.adapters.nats.connection.keys import read_key
from harness.nats_operator import Operator
from harness.patience import patience
from harness.stack import Gateway, Stack

HERE = Path(__file__).parent
MEMBER = """
apiVersion: cadre.dev/v1
kind: RemoteAgent
metadata: {name: far}
spec:
  description: Far.
  nats: {agent: stock, owner: test, session: far, credentials: member.creds}
  poll: 1s
"""


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, Gateway]]:
    folder, operator = tmp_path_factory.mktemp("operator"), Operator()
    for user in ("team", "door", "member", "caller", "agent"):
        (folder / f"{user}.creds").write_text(operator.credentials(user))
    (folder / "far.yaml").write_text(MEMBER)
    with Stack(folder, nats=operator.config) as stack:
        stack.environment |= {
            "CADRE_NATS_CREDENTIALS": str(folder / "team.creds"),
            "CADRE_DOORS": "openai,synadia",
            "CADRE_SYNADIA_CREDENTIALS": str(folder / "door.creds"),
        }
        stack.model(HERE / "doors" / "script.yaml")
        stack.agent(HERE / "doors" / "host.yaml", start=False)
        stack.add("member", "cadre.cli.main", "member", folder / "far.yaml", start=False)
        key = f"creds={folder / 'agent.creds'}"
        stack.add("agent", HERE / "synadia" / "agent.py", folder, "far", key, "trust=signed", start=False).start(
            wait=False
        )
        gateway = stack.open_gateway(2)
        yield stack, gateway


def test_services_and_members_connect_with_them(deployment: tuple[Stack, Gateway]) -> None:
    _, gateway = deployment
    assert gateway.answer("host", "Hi") == "Hello!"
    said = gateway.answer("far", "echo")
    assert re.search(r"sender: .*A[A-Z2-7]{55}\.U[A-Z2-7]{55}", said), f"the prompt was signed: {said}"


async def test_the_door_on_nats_connects_with_them(deployment: tuple[Stack, Gateway]) -> None:
    stack, _ = deployment
    caller = stack.folder / "caller.creds"
    nc = await nats.connect(stack.nats.url, user_credentials=str(caller))
    agents = Agents(
        nc=nc,
        identity=Identity(signer=signer_from_seed(read_key(caller).seed)),
        stream_inactivity_timeout=patience(),
    )
    try:
        (host,) = await agents.discover(filter=DiscoverFilter(agent="cadre", session_name="host"))
        said = [one.text async for one in host.prompt("Hi") if isinstance(one, ResponseChunk)]
        assert "".join(said) == "Hello!"
    finally:
        await agents.close()
        await nc.close()

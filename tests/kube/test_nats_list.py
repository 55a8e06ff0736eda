"""NATS itself is asked whether it has read the list of its users, with the key of a service that waits."""

from base64 import b64decode
from pathlib import Path

import pytest

from cadre.deploy.k8s.values import read_values
from cadre.protocol.nats_users import Role
from cadre_operator import nats_list
from cadre_operator.nats_list import NatsList
from cadre_operator.users import Users
from harness.nats_server import NatsServer, free_port


async def test_a_server_that_reads_no_users_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values, users = read_values({"nats": {"url": f"nats://127.0.0.1:{free_port()}"}}), Users([])
    known = users.secret(Role(kind="agent", name="known"), "cadre")
    listed = b64decode(users.server_secret(values)["data"]["auth.conf"]).decode()
    late = users.secret(Role(kind="agent", name="late"), "cadre")
    asked = NatsList()
    port = int(values.nats.url.rpartition(":")[2])
    assert await asked.unread(values, [known, late]) == "", "no server says nothing about its list"
    with NatsServer(tmp_path, port=port, more=listed):
        assert await asked.unread(values, [known]) == ""
        assert await asked.unread(values, [known, late]) == "", "it has a while to read the list"
        monkeypatch.setattr(nats_list, "READ_WITHIN_SECONDS", 0.0)
        assert "Secret cadre-nats-agent-late" in await asked.unread(values, [known, late])
        assert await asked.unread(values, [known]) == ""

"""NATS itself is asked whether it has read the list of its users, with the key of a service that waits."""

import asyncio
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from cadre.adapters.nats.connection.connect import connect
from cadre.deploy.k8s.values import read_values
from cadre.errors import BusUnavailable
from cadre.protocol.nats_users import Role
from cadre.settings import Settings
from cadre_operator import nats_users
from cadre_operator.nats_users import NatsList, Users
from harness.nats_server import NatsServer, free_port
from harness.patience import patience
from kube.api_server import ApiServer
from kube.conftest import OperatorProcess
from kube.objects import agent, put


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
        monkeypatch.setattr(nats_users, "READ_WITHIN_SECONDS", 0.0)
        assert "Secret cadre-nats-agent-late" in await asked.unread(values, [known, late])
        assert await asked.unread(values, [known]) == ""


async def test_a_connection_that_is_given_up_leaves_no_task_that_fails() -> None:
    """A loop's owner such as kopf may end the task and fail with its error."""
    before = asyncio.all_tasks()
    settings = Settings(nats_url=f"nats://127.0.0.1:{free_port()}")
    left: set[asyncio.Task[Any]] = set()
    made = asyncio.create_task(connect(settings, "test", wait=False))
    while not (left := asyncio.all_tasks() - before - {made}):  # noqa: ASYNC110 - a task begins unannounced
        await asyncio.sleep(0)
    with pytest.raises(BusUnavailable):
        await made
    await asyncio.wait(left)
    assert [one.exception() for one in left if not one.cancelled()] == [None]


async def test_the_operator_ends_cleanly_while_it_waits_for_an_answer_of_nats(
    api: ApiServer, stopped: OperatorProcess, tmp_path: Path
) -> None:
    asked = asyncio.Event()

    async def keep_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(keep_silent, "127.0.0.1", 0) as server:
        url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        (tmp_path / "nats.yaml").write_text(f"nats: {{url: '{url}'}}\n")
        await stopped.start("-f", str(tmp_path / "nats.yaml"))
        await put(api, agent("one"))
        await asyncio.wait_for(asked.wait(), patience())
        assert await stopped.stop() == 0, stopped.log

"""The index in a file: when what was saved is trusted, and what becomes of a file that cannot be."""

import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cadre.errors import RunIndexUnavailable, SettingError, SetupError
from cadre.protocol.messages import Erased
from cadre_gateway.index.database.port import DATA_TABLES, SqlQuery
from cadre_gateway.index.database.settings import IndexSettings, open_database
from cadre_gateway.index.run_filter import RunFilter
from cadre_gateway.index.run_index import PendingErasure, RunIndex
from harness.nats_server import NatsServer
from harness.patience import until
from integration.gateway_world import GatewayProcess, entered
from unit.inline_index import take
from unit.journal_entries import accepted, entry

STREAMS = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"]


@asynccontextmanager
async def opened(file: Path, streams: list[str] = STREAMS) -> AsyncIterator[RunIndex]:
    index = RunIndex(open_database(IndexSettings(url=f"sqlite://{file}")), streams)
    await index.open()
    try:
        yield index
    finally:
        await index.close()


async def fill(index: RunIndex, runs: int) -> None:
    index.positions_read = lambda: [runs, 5, 0, 0, 0, 0]
    for number in range(runs):
        name = f"r{number}"
        await take(
            index,
            number + 1,
            entry(name, 1, float(number), accepted(name, at=float(number))),
            {"blob:" + "a" * 64},
        )


async def test_what_was_saved_is_there_again(tmp_path: Path) -> None:
    file = tmp_path / "kept here" / "index.db"
    async with opened(file) as index:
        await fill(index, 3000)
        index.removals.pending_erasures["b"] = PendingErasure("b", 7, 9.0, False)
    assert file.stat().st_mode & 0o077 == 0, "what runs are about is nobody else's business"
    async with opened(file) as index:
        assert index.positions == [3000, 5, 0, 0, 0, 0]
        assert await index.count(RunFilter()) == 3000
        assert list(index.removals.pending_erasures) == ["b"]
        found, more = await index.list(RunFilter(), limit=2)
        assert [one.id for one in found] == ["r2999", "r2998"]
        assert more is not None


async def test_an_index_of_other_streams_is_made_anew(tmp_path: Path) -> None:
    async with opened(tmp_path / "index.db") as index:
        await fill(index, 3)
    async with opened(tmp_path / "index.db", [STREAMS[0], "2031-01-01T00:00:00Z"]) as index:
        assert (index.positions, await index.count(RunFilter())) == ([0] * 6, 0)


async def test_an_index_from_before_what_is_on_record_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was erased meanwhile would stay in the list."""
    async with opened(tmp_path / "index.db") as index:
        await fill(index, 3)
    later = time.time() + 6.5 * 24 * 3600
    monkeypatch.setattr("cadre_gateway.index.run_index.time.time", lambda: later)
    async with opened(tmp_path / "index.db") as index:
        assert (index.positions, await index.count(RunFilter())) == ([0] * 6, 0)


def _damage(file: Path) -> None:
    file.write_bytes(b"not a database" * 100)


def _age(file: Path) -> None:
    connection = sqlite3.connect(file)
    connection.execute("UPDATE meta SET value = '0.1' WHERE name = 'version'")
    connection.commit()
    connection.close()


@pytest.mark.parametrize("invalidate", [_damage, _age])
async def test_a_file_that_is_damaged_or_of_another_version_is_made_anew(
    tmp_path: Path, invalidate: Callable[[Path], None]
) -> None:
    async with opened(tmp_path / "index.db") as index:
        await fill(index, 3)
    invalidate(tmp_path / "index.db")
    async with opened(tmp_path / "index.db") as index:
        assert (index.positions, await index.count(RunFilter())) == ([0] * 6, 0)
        await fill(index, 1)
        assert await index.count(RunFilter()) == 1


async def test_one_file_is_one_gateways(tmp_path: Path) -> None:
    async with opened(tmp_path / "index.db"):
        with pytest.raises(SetupError, match=r"index\.db.*CADRE_INDEX_URL"):
            async with opened(tmp_path / "index.db"):
                pass


@pytest.mark.parametrize("url", ["index.db", "sqlite://index.db", "mysql:///x", "sqlite:///"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(SetupError, match="sqlite:///FILE"):
        IndexSettings(url=url)


def test_tenants_have_schemas_of_their_own_in_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CADRE_INDEX_URL", "postgresql://cadre@127.0.0.1/cadre")
    names = ["acme", "a-b", "a_b", "A-b", "acme-of-the-north", "acme-of-the-south"]
    found = [IndexSettings.of_tenant(name).schema for name in names]
    assert found[:2] == ["cadre_index_acme", "cadre_index_a_b"]
    assert len(set(found)) == len(names)
    with pytest.raises(SettingError, match="CADRE_INDEX_SCHEMA"):
        IndexSettings(url="postgresql://127.0.0.1/cadre", schema="drop table")


async def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="CADRE_INDEX_URL"):
        async with opened(tmp_path / "file" / "index.db"):
            pass


async def test_a_full_disk_costs_nothing_that_was_read(tmp_path: Path) -> None:
    async with opened(tmp_path / "index.db") as index:
        await fill(index, 10)
        await index.flush()
        database = index._database
        connection = database._writing  # type: ignore[attr-defined]
        connection.execute("PRAGMA max_page_count = 1")
        await fill(index, 3000)
        with pytest.raises(RunIndexUnavailable, match="full"):
            await index.count(RunFilter())
        connection.execute("PRAGMA max_page_count = 1000000")
        assert await index.count(RunFilter()) == 3000


async def test_erased_and_forgotten_trees_leave_nothing_behind(tmp_path: Path) -> None:
    async with opened(tmp_path / "index.db") as index:
        await fill(index, 50)
        await index.flush()
        for number in range(50):
            name = f"r{number}"
            async with index.changing(name) as tree:
                assert tree.record.erase(1000 + number, Erased(id="e", tree=name, run=name, at=1.0))
                tree.forget()
        await index.drop_tombstones(2.0)
        for table in DATA_TABLES[:-1]:
            assert await index.read(SqlQuery(f"SELECT count(*) FROM {table}")) == [(0,)], table


async def test_a_gateway_that_is_killed_leaves_no_index_behind(nats_server: NatsServer, tmp_path: Path) -> None:
    """Start a gateway whose index file has no name; that index can be rebuilt, too."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    gateway = GatewayProcess(nats_server.url, tmp_path, CADRE_INDEX_URL="", TMPDIR=str(folder))
    try:
        async with entered(gateway) as world:
            run = await world.ended_run()
            assert (await world.http.post("/v1/index/rebuild")).status_code == 202

            async def is_rebuilt() -> bool:
                state = (await world.http.get("/v1/index")).json()
                return bool(state["rebuild"]["state"] == "done" and state["bytes"])

            await until(is_rebuilt)
            await world.listed(run)
            assert await world.listed(await world.ended_run())
    finally:
        gateway.kill()
    assert list(folder.iterdir()) == []


async def test_a_file_that_somebody_has_locked_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cadre_gateway.index.database.sqlite._BUSY_SECONDS", 0.1)
    async with opened(tmp_path / "index.db") as index:
        await fill(index, 3)
    holder = sqlite3.connect(tmp_path / "index.db", isolation_level=None)
    holder.execute("PRAGMA locking_mode = EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")
    index = RunIndex(open_database(IndexSettings(url=f"sqlite://{tmp_path / 'index.db'}")), STREAMS)
    with pytest.raises(RunIndexUnavailable, match="locked"):
        await index.open()
    assert index.failure is not None
    holder.close()
    await index.open()
    assert await index.count(RunFilter()) == 3
    await index.close()

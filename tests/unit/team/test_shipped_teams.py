"""The shipped teams in memory: their scripts answer from what the tools return, and what must happen once does."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from cadre.client import RunFailed
from cadre.testing import TeamRun, TeamRunWaits
from harness.played_team import TEAMS, played_team


def query(file: Path, text: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute(text).fetchall()


async def test_the_comparer_reads_every_offer_and_writes_the_comparison() -> None:
    files = {file.name: file.read_bytes() for file in (TEAMS / "offers" / "documents").glob("*.md")}
    async with played_team("offers") as team:
        run = await team.start("comparer", "Compare the offers.", files=files)
        assert await run.result() == {"recommended": "Borealis", "total": 41628.0, "refused": ["Calora"]}
        assert "| Ardent | 44396.0 |" in run.files["comparison.md"].decode()


async def test_a_changed_offer_changes_what_the_comparer_recommends() -> None:
    files = {file.name: file.read_bytes() for file in (TEAMS / "offers" / "documents").glob("*.md")}
    files["offer-calora.md"] = files["offer-calora.md"].replace(b"need 16 weeks", b"need 9 weeks")
    async with played_team("offers") as team:
        answer = await team.run("comparer", "Compare the offers.", files=files)
    assert answer == {"recommended": "Calora", "total": 39224.0, "refused": []}


async def settled(run: TeamRun) -> object:
    try:
        return await run.result()
    except TeamRunWaits:
        await run.approve()
        return await run.result()


@pytest.mark.parametrize("deadly", [None, 22, 41])
async def test_each_ticket_is_settled_once_whoever_dies(
    deadly: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TICKETS_DB", str(tmp_path / "shop"))
    async with played_team("tickets") as team:
        if deadly is not None:
            team.crash_after(deadly)
        run = await team.start("clerk", "Do today's inbox.")
        assert await settled(run) == {"refunded": 217.5, "settled": ["T-1", "T-2", "T-3", "T-4", "T-5"]}
        assert len(team.kills) == (deadly is not None)
    assert query(tmp_path / "shop", "select ticket, kind, amount from actions order by ticket") == [
        ("T-1", "replacement", 0),
        ("T-2", "refund", 58.5),
        ("T-3", "refund", 39),
        ("T-4", "refund", 120),
        ("T-5", "reply", 0),
    ]


async def test_an_order_that_fails_leaves_nothing_but_an_apology(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PURCHASES_DB", str(tmp_path / "ledger"))
    async with played_team("purchases") as team:
        run = await team.start("buyer", "Purchase P-3.")
        with pytest.raises(RunFailed, match="not made any more"):
            await settled(run)
        assert await team.run("buyer", "Purchase P-1.") == {"ordered": "coffee", "total": 84.0, "days": 2}
        assert await team.run("buyer", "Purchase P-4.") == "declined: P-4"
    assert query(tmp_path / "ledger", "select request from reservations") == [("P-1",)]
    mails = [text for (text,) in query(tmp_path / "ledger", "select text from mails where request = 'P-3'")]
    assert ["comes in 14 days" in str(mails[0]), "cannot be had" in str(mails[1])] == [True, True]

"""The ledger: every entry is in the sums once, runs or none, and the sums have a bound."""

from typing import Any

import msgspec
import pytest

from cadre.api.directory import Dimension
from cadre.api.runs import RunSummary
from cadre.journal import events as ev
from cadre.journal.entry import ArrivalRecord, Entry
from cadre.kinds.code.records import BlockFinished
from cadre.protocol.messages import ErrorInfo
from cadre.protocol.usage import TokenUsage
from cadre_gateway.index.usage_ledger import DAY_SECONDS, HOUR_SECONDS, SavedLedger, UsageLedger

DAY = 20_000 * DAY_SECONDS
NOW = DAY + 5 * HOUR_SECONDS + 7
ROOT = RunSummary(id="r", tree="r", agent="lead", user="ann", session="chat")


def answered(tokens: int = 10, cost: float = 0.5, model: str = "gpt", **fields: Any) -> ev.ModelAnswered:
    usage = TokenUsage(tokens, 1, cost=cost)
    return ev.ModelAnswered(purpose="act", step=1, attempt=1, content="", usage=usage, model=model, **fields)


def entry(*events: Any, agent: str = "lead", kind: str = "") -> Entry:
    return Entry(
        arrived=ArrivalRecord("Task"),
        run="r",
        agent=agent,
        n=1,
        cause="c",
        at=0.0,
        events=[*events],
        kind=kind,
    )


def ledger(**options: Any) -> UsageLedger:
    return UsageLedger(SavedLedger(positions=[0, 0]), **options)


def total(of: UsageLedger, *by: Dimension, since: float = 0.0, until: float = 1e12, **only: str) -> Any:
    found = of.rows(since, until, by, only)
    return {tuple(getattr(row, name) for name in by): row for row in found}


def test_sums_are_taken_by_any_of_it() -> None:
    book = ledger()
    book.add(0, 1, NOW, entry(answered(), answered(20, model="tiny", unpriced=True)), ROOT)
    book.add(0, 2, NOW + DAY_SECONDS, entry(answered(5), agent="helper"), ROOT)
    book.add(0, 3, NOW, entry(ev.RunFinished(state="error"), agent="helper"), ROOT)
    book.add(0, 4, NOW, entry(ev.RunFinished(state="cancelled")), ROOT)
    by_agent = total(book, "agent")
    assert by_agent["lead",] == msgspec.convert(
        {"agent": "lead", "runs": 1, "model_calls": 2, "unpriced_calls": 1, "input_tokens": 30}
        | {"output_tokens": 2, "cost": 1.0},
        type(by_agent["lead",]),
    )
    assert (by_agent["helper",].runs, by_agent["helper",].failed, by_agent["helper",].tokens) == (1, 1, 6)
    assert total(book, "team", "user", "session")["lead", "ann", "chat"].model_calls == 3
    assert {key: row.tokens for key, row in total(book, "day", "model").items() if row.tokens} == {
        ("2024-10-04", "gpt"): 11,
        ("2024-10-04", "tiny"): 21,
        ("2024-10-05", "gpt"): 6,
    }
    assert total(book, agent="helper")[()].runs == 1
    assert total(book, since=DAY + DAY_SECONDS)[()].tokens == 6
    assert total(book, until=DAY + 5 * HOUR_SECONDS) == {}


def test_tools_are_counted_with_what_fails_and_what_times_out() -> None:
    book = ledger()
    called = ev.ToolCalled(call="c1", tool="pay", arguments={})
    late = ev.CallTimedOut(call="c1", seconds=3.0)
    broken = ErrorInfo("tool-failed", "no")
    book.add(0, 1, NOW, entry(called, ev.ToolAnswered(call="c0", tool="add")), ROOT)
    book = UsageLedger(msgspec.json.decode(msgspec.json.encode(book.to_saved()), type=SavedLedger))
    book.add(0, 2, NOW, entry(late, ev.ToolAnswered(call="c2", tool="add", error=broken)), None)
    member = ev.CallTimedOut(call="a member", seconds=3.0)
    block = BlockFinished(block="b", exchange=0, error=broken)
    book.add(0, 3, NOW, entry(member, block, kind="code"), None)
    found = {key[0]: (row.tool_calls, row.tool_failures) for key, row in total(book, "tool").items()}
    assert found == {"add": (2, 1), "pay": (1, 1), "python": (1, 1)}


def test_an_entry_that_is_read_again_adds_nothing_also_after_a_restart() -> None:
    book = ledger()
    for _ in range(2):
        book.add(1, 7, NOW, entry(answered()), ROOT)
        book = UsageLedger(msgspec.json.decode(msgspec.json.encode(book.to_saved()), type=SavedLedger))
    book.add(0, 7, NOW, entry(answered()), ROOT)  # another shard
    assert total(book)[()].model_calls == 2
    assert book.positions == [7, 7]


def test_old_days_lose_their_hours_and_sessions_and_then_go() -> None:
    book = ledger()
    for hour in range(3):
        session = msgspec.structs.replace(ROOT, session=f"s{hour}")
        book.add(0, hour + 1, DAY + hour * HOUR_SECONDS, entry(answered()), session)
    assert len(book) == 3
    book.add(0, 4, DAY + 40 * DAY_SECONDS, entry(answered()), ROOT)
    assert len(book) == 2
    book.add(0, 5, DAY + 60, entry(answered()), ROOT)  # late, of the day that is whole by now
    assert (len(book), total(book, "session")["",].model_calls) == (2, 4)
    book.add(0, 6, DAY + 400 * DAY_SECONDS, entry(answered()), ROOT)
    book.add(0, 7, DAY, entry(answered()), ROOT)
    assert total(book)[()].model_calls == 2


@pytest.mark.parametrize(("left", "days"), [("session", 1), ("user", 1), ("hour", 3)])
def test_what_is_too_much_to_keep_apart_is_kept_together(left: str, days: int) -> None:
    book = ledger(max_cells=20)
    for number in range(200):
        root = msgspec.structs.replace(ROOT, session=None, user=None)
        if left != "hour":
            setattr(root, left, f"x{number}")
        book.add(0, number + 1, DAY + number % (24 * days) * HOUR_SECONDS, entry(answered()), root)
        assert len(book) <= 20
    assert total(book)[()].model_calls == 200


def test_days_make_room_when_nothing_else_can() -> None:
    book = ledger(max_cells=20)
    for day in range(50):
        book.add(0, day + 1, DAY + day * DAY_SECONDS, entry(answered()), ROOT)
    assert len(book) <= 20
    assert total(book, since=DAY + 40 * DAY_SECONDS)[()].model_calls == 10


def test_listeners_hear_of_what_models_add() -> None:
    book, heard = ledger(), []
    book.listeners.append(lambda key, sums: heard.append((key.agent, sums.tokens)))
    book.add(0, 1, NOW, entry(answered(), ev.RunFinished(state="success")), ROOT)
    book.add(0, 1, NOW, entry(answered()), ROOT)
    assert heard == [("lead", 11)]
    assert [(key.hour, sums.tokens) for key, sums in book.spending(NOW)] == [(DAY + 5 * HOUR_SECONDS, 11)]
    assert book.spending(NOW + HOUR_SECONDS) == []


def test_how_long_tasks_took_is_known_to_a_tenth_and_survives_saving() -> None:
    book = ledger()
    root = msgspec.structs.replace(ROOT, started_at=NOW)
    for seq, seconds in enumerate([1.0, 2.0, 3.0, 4.0, 100.0], start=1):
        book.add(0, seq, NOW + seconds, entry(ev.RunFinished(state="success")), root)
    kept = UsageLedger(msgspec.json.decode(msgspec.json.encode(book.to_saved()), type=SavedLedger))
    for one in (book, kept):
        row = total(one, "hour")["2024-10-04T05:00Z",]
        assert row.p50_seconds == pytest.approx(3.0, rel=0.1)
        assert row.p95_seconds == pytest.approx(100.0, rel=0.1)
        assert row.p50_seconds >= 3.0
        assert row.times is msgspec.UNSET
    assert total(ledger()) == {}


def test_members_do_not_count_among_the_times_of_tasks() -> None:
    book = ledger()
    member = msgspec.structs.replace(ROOT, id="other", started_at=NOW)
    book.add(0, 1, NOW + 5, entry(ev.RunFinished(state="success")), member)
    assert (total(book)[()].runs, total(book)[()].p50_seconds) == (1, None)


def test_the_last_two_hours_are_known_by_the_minute_and_survive_saving() -> None:
    book = ledger()
    for seq, seconds in enumerate([0, 30, 61, 3599, 2 * HOUR_SECONDS + 61], start=1):
        book.add(0, seq, DAY + seconds, entry(answered()), ROOT)
    kept = UsageLedger(msgspec.json.decode(msgspec.json.encode(book.to_saved()), type=SavedLedger))
    for one in (book, kept):
        found = one.rows(DAY, 1e12, ("minute", "agent"), {}, of_minutes=True)
        assert [(row.minute, row.model_calls) for row in found] == [
            ("2024-10-04T00:59Z", 1),
            ("2024-10-04T02:01Z", 1),
        ], "what is two hours old is not kept by the minute"
        assert total(one)[()].model_calls == 5, "and each call is in the sums by the hour once"
    late = ledger()
    late.add(0, 1, DAY + 30, entry(answered()), ROOT)
    late.add(0, 2, DAY + 50, entry(answered()), ROOT)
    (row,) = late.rows(DAY, 1e12, ("minute",), {}, of_minutes=True)
    assert (row.minute, row.model_calls, row.tokens) == ("2024-10-04T00:00Z", 2, 22)


def test_sums_by_the_minute_have_a_bound() -> None:
    book = ledger()
    for number in range(12_000):
        root = msgspec.structs.replace(ROOT, user=f"u{number % 100}")
        book.add(0, number + 1, DAY + number // 100 * 60, entry(answered()), root)
    assert len(book.to_saved().minutes) <= 5_000
    newest = book.rows(DAY + 119 * 60, 1e12, ("minute",), {}, of_minutes=True)
    assert [row.model_calls for row in newest] == [100]

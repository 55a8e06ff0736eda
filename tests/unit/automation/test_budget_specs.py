"""Standing budgets: their windows, what they cover, what is counted, what is sent."""

from datetime import datetime
from typing import Any

import pytest

from cadre.api.directory import Figures
from cadre.automation.automation_file import automation_of
from cadre.automation.standing_budget import BudgetSpec, BudgetUse, TimeWindow, budget_happenings
from cadre.errors import SpecError
from cadre_gateway.index.usage_ledger import LedgerKey
from cadre_gateway.starting.admission import BudgetMeter


def budget(**keys: Any) -> BudgetSpec:
    return automation_of(BudgetSpec, "b", {"window": "day", "tokens": 100, **keys})


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("window", "zone", "now", "begin", "end"),
    [
        ("hour", "UTC", "2026-11-22T10:59:59.5+00:00", "2026-11-22T10:00+00:00", "2026-11-22T11:00+00:00"),
        (
            "hour",
            "Asia/Kolkata",
            "2026-11-22T10:59+00:00",
            "2026-11-22T10:30+00:00",
            "2026-11-22T11:30+00:00",
        ),
        ("day", "UTC", "2026-11-22T00:00+00:00", "2026-11-22T00:00+00:00", "2026-11-23T00:00+00:00"),
        # The days on which clocks are changed have 25 and 23 hours.
        (
            "day",
            "Europe/Berlin",
            "2026-10-25T12:00+01:00",
            "2026-10-25T00:00+02:00",
            "2026-10-26T00:00+01:00",
        ),
        (
            "day",
            "Europe/Berlin",
            "2026-03-29T12:00+02:00",
            "2026-03-29T00:00+01:00",
            "2026-03-30T00:00+02:00",
        ),
        ("week", "UTC", "2026-11-22T23:00+00:00", "2026-11-16T00:00+00:00", "2026-11-23T00:00+00:00"),
        (
            "month",
            "America/New_York",
            "2026-12-31T23:00-05:00",
            "2026-12-01T00:00-05:00",
            "2027-01-01T00:00-05:00",
        ),
        ("month", "UTC", "2028-02-29T12:00+00:00", "2028-02-01T00:00+00:00", "2028-03-01T00:00+00:00"),
    ],
)
def test_windows_begin_where_people_expect_it(window: str, zone: str, now: str, begin: str, end: str) -> None:
    found = budget(window=window, time_zone=zone).window_at(at(now))
    assert found == TimeWindow(at(begin), at(end))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"tokens": None}, "tokens, cost: write one"),
        ({"tokens": 0}, "tokens: Expected `int` >= 1"),
        ({"window": "year"}, "window: Invalid enum value 'year'"),
        ({"time_zone": "Nowhere"}, "time_zone"),
        ({"user": " "}, "user: write a name"),
        ({"people": 3}, "window, tokens, cost, user"),
    ],
)
def test_what_is_wrong_is_named(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        budget(**keys)


NOW = at("2026-11-22T10:30+00:00")


def key(agent: str = "lead", team: str = "lead", user: str = "ann", now: float = NOW) -> LedgerKey:
    return LedgerKey(int(now - now % 3600), team, agent, user, "", "gpt", "")


@pytest.mark.parametrize(
    ("keys", "used"),
    [
        ({}, {"": 160}),
        ({"user": "ann"}, {"": 70}),
        ({"user": "*"}, {"ann": 70, "bob": 80}),
        ({"agent": "helper"}, {"": 80}),
        ({"team": "lead"}, {"": 150}),
        ({"team": "lead", "user": "bob"}, {"": 80}),
    ],
)
def test_a_budget_counts_what_is_its_own(keys: dict[str, Any], used: dict[str, int]) -> None:
    before = [(key(now=NOW - 86_400), Figures(input_tokens=1000, model_calls=1))]
    meter = BudgetMeter(budget(**keys), NOW, [*before, (key(), Figures(input_tokens=70, model_calls=1))])
    meter.add(key("helper", user="bob"), Figures(output_tokens=80, model_calls=1))
    meter.add(key("other", "other", ""), Figures(output_tokens=10, model_calls=1))
    meter.add(key(now=NOW + 86_400), Figures(output_tokens=10, model_calls=1))
    assert {user: use.tokens for user, use in meter.uses.items()} == used


def test_the_greater_share_counts() -> None:
    meter = BudgetMeter(budget(cost=2.0), NOW, [(key(), Figures(input_tokens=50, cost=1.8))])
    assert meter.uses[""] == BudgetUse(tokens=50, cost=1.8, share=0.9)


@pytest.mark.parametrize(("share", "told"), [(0.79, []), (0.8, ["warning"]), (1.2, ["warning", "exhausted"])])
def test_what_there_is_to_tell(share: float, told: list[str]) -> None:
    use = BudgetUse(user="ann", tokens=1, share=share)
    found = list(budget_happenings(budget(user="*"), TimeWindow(7200.0, 9000.0), use, NOW))
    assert [one.type for one in found] == [f"budget.standing_{one}" for one in told]
    assert len({one.id for one in found}) == len(told)
    assert all(one.run == "budget/b" and " " not in one.id and "." not in one.id for one in found)
    again = budget_happenings(budget(user="*"), TimeWindow(7200.0, 9000.0), use, NOW + 60)
    assert [one.id for one in again] == [one.id for one in found]

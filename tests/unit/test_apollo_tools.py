"""The tools of the Apollo team against figures worked out here by other means, and what their errors teach."""

import csv
import shutil
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cadre.tools.loading import load_tools

TEAM = Path(__file__).parents[2] / "teams" / "apollo"
LANDED = {"lunar_landing": "yes"}


def functions(file: str) -> dict[str, Callable[..., Any]]:
    return {tool.name: tool for tool in load_tools(str(TEAM / "tools" / file))}


TABLES, DOCUMENTS = functions("tables.py"), functions("documents.py")
aggregate, rank_by_ratio, select_rows = (TABLES[n] for n in ("aggregate", "rank_by_ratio", "select_rows"))
search, check_statement = DOCUMENTS["search_documents"], DOCUMENTS["check_statement"]


def rows(table: str) -> list[dict[str, str]]:
    with (TEAM / "data" / f"{table}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def module_of(tool: Callable[..., Any]) -> ModuleType:
    return sys.modules[tool.__module__]


def seconds(duration: str) -> float:
    hours, minutes, rest = map(int, duration.split(":"))
    return timedelta(hours=hours, minutes=minutes, seconds=rest).total_seconds()


# --- the data


def test_the_two_tables_agree_on_the_time_outside() -> None:
    for row in rows("missions"):
        walks = [seconds(walk["duration"]) for walk in rows("evas") if walk["mission"] == row["mission"]]
        assert len(walks) == int(row["evas"])
        assert sum(walks) / 60 == pytest.approx(float(row["eva_minutes"] or 0), abs=0.006)


def test_the_landings_brought_what_is_published() -> None:
    total = sum(float(row["samples_kg"]) for row in rows("missions") if row["lunar_landing"] == "yes")
    assert total == pytest.approx(381.7)


# --- tables


def test_every_tool_changes_nothing_and_says_so() -> None:
    for file in ("tables.py", "documents.py"):
        assert all(tool.card.read_only for tool in load_tools(str(TEAM / "tools" / file)))


@pytest.mark.parametrize(
    ("function", "expected"),
    [("sum", 381.7), ("mean", 381.7 / 6), ("min", 21.6), ("max", 110.5), ("count", 6)],
)
def test_aggregate(function: str, expected: float) -> None:
    result = aggregate("missions", function, "samples_kg", LANDED)
    assert result["value"] == pytest.approx(expected, abs=1e-6)
    assert result["rows"] == 6
    assert result == aggregate("missions", function, "samples_kg")  # the other flights have no value


def test_durations_are_minutes_and_can_be_grouped() -> None:
    result = aggregate("evas", "sum", "duration", None, "mission")
    assert result["unit"] == "minutes"
    assert result["value"] == pytest.approx(seconds("80:32:26") / 60, abs=1e-5)
    by_flight = {group["group"]: group["value"] for group in result["groups"]}
    assert by_flight["Apollo 17"] == pytest.approx(seconds("22:03:57") / 60, abs=1e-5)
    assert len(by_flight) == 6
    assert aggregate("evas", "count", "duration")["unit"] == ""


def test_ratios_are_ranked_and_rows_without_a_divisor_named() -> None:
    result = rank_by_ratio("missions", "samples_kg", "eva_minutes", "mission", 60.0)
    rates = {
        row["mission"]: float(row["samples_kg"]) / float(row["eva_minutes"]) * 60
        for row in rows("missions")
        if row["samples_kg"]
    }
    assert [r["label"] for r in result["ratios"]] == sorted(rates, key=lambda name: -rates[name])
    assert result["ratios"][0]["label"] == "Apollo 11"
    assert all(r["ratio"] == pytest.approx(rates[r["label"]], abs=1e-4) for r in result["ratios"])
    assert result["left_out"] == ["Apollo 7", "Apollo 8", "Apollo 9", "Apollo 10", "Apollo 13"]


def test_rows_are_filtered_and_sorted_by_value_not_by_letters() -> None:
    heaviest = select_rows("missions", ["mission", "samples_kg"], None, "samples_kg", True, 2)
    assert heaviest == [
        {"mission": "Apollo 17", "samples_kg": "110.5"},
        {"mission": "Apollo 16", "samples_kg": "95.7"},
    ]
    everything = select_rows("missions", ["mission"], None, "samples_kg")
    assert everything[0] == {"mission": "Apollo 11"}
    assert everything[-1] == {"mission": "Apollo 13"}  # no value: last, whichever way
    by_time = select_rows("evas", ["mission", "eva"], None, "duration", True, 1)
    assert by_time == [{"mission": "Apollo 17", "eva": "2"}]
    assert select_rows("missions", ["crew"], {"landing_site": "fra mauro"}) == [{"crew": "Shepard; Roosa; Mitchell"}]


def test_tables_are_described() -> None:
    tables = {table["table"]: table for table in TABLES["list_tables"]()}
    assert {name: table["rows"] for name, table in tables.items()} == {"evas": 14, "missions": 11}
    kinds = {column["column"]: column["kind"] for column in TABLES["table_columns"]("missions")}
    assert (kinds["samples_kg"], kinds["crew"], kinds["launch_date"]) == ("number", "text", "text")
    assert {c["column"]: c["kind"] for c in TABLES["table_columns"]("evas")}["duration"] == "duration"


@pytest.mark.parametrize(
    ("call", "lesson"),
    [
        (
            lambda: aggregate("missions", "sum", "mass_kg"),
            "no column 'mass_kg' in missions; columns are mission, .*samples_kg",
        ),
        (lambda: aggregate("flights", "sum", "x"), "no table 'flights'; tables are evas, missions"),
        (lambda: aggregate("../data/missions", "sum", "x"), "no table"),
        (
            lambda: aggregate("missions", "sum", "crew"),
            "column 'crew' of missions cannot be calculated with: .*Schirra",
        ),
        (
            lambda: aggregate("missions", "sum", "samples_kg", {"lunar_landing": "maybe"}),
            "has 'maybe' in 'lunar_landing'; values are no, yes",
        ),
        (lambda: aggregate("missions", "sum", "samples_kg", {"landed": "yes"}), "no column 'landed'"),
        (
            lambda: aggregate("missions", "sum", "rover_km", {"mission": "Apollo 11"}),
            "no row of missions .* has a value in 'rover_km'",
        ),
        (lambda: aggregate("missions", "sum", "samples_kg", None, "pilot"), "no column 'pilot'"),
        (lambda: rank_by_ratio("missions", "samples_kg", "evas", "name"), "no column 'name'"),
        (lambda: select_rows("missions", ["mission"], None, "weight"), "no column 'weight'"),
    ],
)
def test_errors_say_what_there_is(call: Callable[[], object], lesson: str) -> None:
    with pytest.raises(ValueError, match=lesson):
        call()


def test_figures_follow_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(TEAM / "data", tmp_path / "data")
    table = tmp_path / "data" / "missions.csv"
    table.write_text(table.read_text().replace(",95.7,", ",195.7,"))
    monkeypatch.setattr(module_of(aggregate), "FOLDER", tmp_path / "data")
    assert aggregate("missions", "sum", "samples_kg")["value"] == pytest.approx(481.7)


# --- documents


@pytest.mark.parametrize(
    ("query", "document"),
    [
        ("largest collection of rock of all landings", "apollo-17-taurus-littrow"),
        ("orange soil", "apollo-17-taurus-littrow"),
        ("Genesis Rock anorthosite", "apollo-15-hadley-apennine"),
        ("what does KREEP mean", "apollo-12-ocean-of-storms"),
        ("Surveyor 3 camera", "apollo-12-ocean-of-storms"),
        ("Muehlberger", "apollo-16-descartes"),
        ("nitrogen cabinets", "sample-care"),
        ("oxygen tank burst", "flights-without-landing"),
    ],
)
def test_the_best_hit_is_in_the_right_document(query: str, document: str) -> None:
    hits = search(query)
    assert hits[0]["document"] == document
    assert [h["score"] for h in hits] == sorted((h["score"] for h in hits), reverse=True)


def test_search_returns_no_more_than_asked_and_nothing_for_unknown_words() -> None:
    assert len(search("crater", 2)) == 2
    assert search("zyzzyva") == []
    with pytest.raises(ValueError, match="holds no word to search for"):
        search("what is the")


def test_a_document_is_read_whole() -> None:
    document = DOCUMENTS["read_document"]("sample-care")
    text = (TEAM / "documents" / "sample-care.md").read_text()
    assert f"# {document['title']} {document['text']}".split() == text.split()
    with pytest.raises(ValueError, match="no document 'sample-car'; documents are apollo-11-sea-of-tranquility, "):
        DOCUMENTS["read_document"]("sample-car")


def test_a_true_statement_is_found_whole_in_two_documents() -> None:
    both = check_statement("From Apollo 17: sample 74220, the orange soil of Shorty crater.")
    assert {c["document"] for c in both} == {"apollo-17-taurus-littrow", "sample-care"}
    assert [c["missing"] for c in both] == [[], []]


def test_what_is_wrong_in_a_statement_is_missing() -> None:
    best = check_statement("From Apollo 17: sample 74221, the purple soil of Shorty crater.")[0]
    assert best["document"] == "apollo-17-taurus-littrow"
    assert best["missing"] == ["74221", "purple"]


def test_every_text_names_its_source_and_is_of_readable_length() -> None:
    texts = [path.read_text() for path in (TEAM / "documents").glob("*.md")]
    assert len(texts) >= 8
    for text in texts:
        assert text.rstrip().endswith("Source: compiled from public NASA mission reports.")
        assert 200 <= len(text.split()) <= 400

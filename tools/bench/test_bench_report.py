"""Tests of what the benchmark says about its figures: the verdicts, the table, the document."""

import io
import json
from collections.abc import Mapping

import pytest
from click.testing import CliRunner
from rich.console import Console

from bench import report
from bench.code import NOT_INSTALLED
from bench.scaling.growth import Line, table
from bench.scaling.main import main as scaling

MACHINE = {"cores": 2}


@pytest.mark.parametrize(
    ("key", "value", "reached"),
    [
        ("delegation_p50_ratio", 15.0, True),
        ("delegation_p50_ratio", 15.1, False),
        ("delegation_throughput_ratio", 0.04, True),
        ("delegation_throughput_ratio", 0.039, False),
        ("agent_rss_mb", 61.0, False),
    ],
)
def test_a_target_is_a_limit_from_one_side(key: str, value: float, reached: bool) -> None:
    assert report.verdicts({key: value})[key]["reached"] is reached


def test_the_document_holds_every_figure_and_judges_those_that_have_a_target() -> None:
    values = {
        "delegations_per_second": 900.0,
        "delegations_per_second_rounds": [880.0, 900.0],
        "up_ready_s": 7.0,
    }
    found = json.loads(json.dumps(report.document(values, MACHINE)))
    assert {key: found[key] for key in values} == values
    assert found["targets"] == {"up_ready_s": {"value": 7.0, "target": "≤ 5", "reached": False}}
    assert found["machine"] == MACHINE


def test_the_table_shows_what_was_measured_and_says_what_was_missed() -> None:
    shown = text_of({"delegations_per_second": 1234.4, "up_ready_s": 7.0, "kill_to_report_s": 3.5})
    lines = {line.split("│")[1].strip(): line for line in shown.splitlines() if "│" in line}
    assert "1,234 /s" in lines["delegations, 64 in flight"]
    assert [("MISSED" in line, "reached" in line) for line in lines.values()].count((True, False)) == 1
    assert "reached" in lines["member killed in its model call, until its report"]
    assert "memory" not in shown


def test_what_could_not_be_measured_says_why() -> None:
    values = dict.fromkeys(["code_small_peer_ratio", "code_late_shorter_c_peer_s"], NOT_INSTALLED)
    lines = [line for line in text_of(values).splitlines() if "smolagents' interpreter" in line]
    assert len(lines) == len(values)
    assert all(NOT_INSTALLED in line for line in lines)


def test_the_conclusion_counts_and_names() -> None:
    assert report.conclusion({"up_ready_s": 4.0}) == "1 of 1 targets reached"
    missed = report.conclusion({"up_ready_s": 6.0, "cli_start_cpu_s": 0.2})
    assert missed == "1 of 2 targets reached; missed: up_ready_s"


def test_no_figure_is_described_twice() -> None:
    keys = [row.key for row in report.ROWS]
    assert len(keys) == len(set(keys))


def text_of(values: Mapping[str, object]) -> str:
    out = io.StringIO()
    Console(file=out, width=110).print(report.table(values))
    return out.getvalue()


@pytest.mark.parametrize("sizes", ["0", "abc", "5,-1", "1000,,10"])
def test_numbers_of_kept_runs_that_cannot_be_are_refused_before_anything_is_started(sizes: str) -> None:
    done = CliRunner().invoke(scaling, ["runs", "--runs", sizes])
    assert (done.exit_code, "write whole numbers from 1" in done.stderr) == (2, True), done.output


def test_growth_compares_two_numbers_of_kept_runs() -> None:
    done = CliRunner().invoke(scaling, ["growth", "--runs", "1000"])
    assert (done.exit_code, "--runs=" in done.stderr) == (2, True), done.output


def test_growth_is_a_ratio_of_large_to_small() -> None:
    lines = [Line("a step", (50, 500), "ms", 8.0, 12.0), Line("a page", (1_000, 10_000), "ms", 0.0, 0.5)]
    _, _, step, page = table(lines)
    assert step == "| a step | 50 | 500 | 8.00 ms | 12.00 ms | 1.50 × |"
    assert page.endswith("| 0.50 ms |  |")

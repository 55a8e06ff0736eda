"""Tests of whose memories and which runs a command means: nothing that was given is left out, and nothing is
guessed."""

from collections.abc import Iterator

import pytest

from cadre.errors import ExitCode
from harness.texts import holds
from unit.played_gateway import Gateway, cadre, playing

RUN = "0123456789abcdef" * 2
ERASED = "f" * 32

RECEIPT = {"matched": 0, "forgotten": 0, "left": 0, "at": 1.0, "confirmed": True}


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    with playing(monkeypatch) as server:
        server.answer("GET /v1/runs", {"runs": [{"id": RUN}], "next": None})
        server.answer(f"GET /v1/runs/{RUN}", {"id": RUN})
        server.answer("DELETE /v1/memory", RECEIPT)
        server.answer("GET /v1/memory", {"memories": [], "next": None})
        server.answer("POST /v1/memory/search", {"hits": [], "degraded": False, "why": ""})
        server.answers["GET /v1/memory/export"] = (200, "application/x-ndjson", "")
        yield server


# --- whose memories


def test_an_empty_name_is_told_to_the_gateway_which_refuses_it(gateway: Gateway) -> None:
    """Left out, it would widen what is removed to everybody's."""
    gateway.problem("DELETE /v1/memory", 422, "user: ''")
    result = cadre("memory", "forget", "--user", "", "--agent", "notes", "--yes")
    assert (result.exit_code, result.stdout) == (ExitCode.USAGE, "")
    assert result.stderr == "cadre: user: ''\n"
    assert gateway.asked == ["DELETE /v1/memory?user=&agent=notes"]


@pytest.mark.parametrize("verb", ["list", "export"])
def test_an_empty_name_selects_no_more_than_was_said(gateway: Gateway, verb: str) -> None:
    assert cadre("memory", verb, "--all", "--user", "").exit_code == ExitCode.OK
    [asked] = gateway.asked
    assert "user=" in asked
    assert "all=true" in asked


def test_an_empty_name_in_a_search(gateway: Gateway) -> None:
    cadre("memory", "search", "ferry", "--user", "", "--agent", "notes")
    assert gateway.posted[0]["selection"] == {"agent": "notes", "user": ""}


def test_runs_of_an_agent_without_a_name_are_nobodys(gateway: Gateway) -> None:
    cadre("runs", "--agent", "")
    assert gateway.asked == ["GET /v1/runs?limit=21&agent="]


def test_the_runs_below_one_and_the_time_of_statistics_are_asked_for_as_over_http(gateway: Gateway) -> None:
    gateway.answer("GET /v1/stats", {"by": ["agent"], "rows": [], "total": {"unpriced_calls": 0}})
    cadre("runs", "--parent", RUN)
    assert gateway.asked[-1].endswith(f"&parent={RUN}")
    assert cadre("stats", "--since", "7d", "--until", "1d", "-o", "json").exit_code == ExitCode.OK
    assert gateway.asked[-1] == "GET /v1/stats?since=7d&until=1d&by=agent"


@pytest.mark.parametrize(
    ("reference", "sent"),
    [("@last", RUN), (RUN[:5], RUN), (RUN[:5] + "_1_0", RUN + "_1_0"), (RUN, RUN), (ERASED, ERASED)],
)
def test_the_run_whose_memories_are_meant_is_named_as_everywhere(gateway: Gateway, reference: str, sent: str) -> None:
    """A whole id of an erased run stands for itself: what was kept for others may still name it."""
    result = cadre("memory", "forget", "--run", reference, "--yes")
    assert (result.exit_code, result.stdout) == (ExitCode.OK, "forgotten: 0, left: 0\n")
    assert result.stderr == "no memories fit\n"
    assert gateway.asked[-1] == f"DELETE /v1/memory?run={sent}&confirm=true"
    cadre("memory", "search", "ferry", "--run", reference)
    assert gateway.posted[0]["selection"] == {"run": sent}


@pytest.mark.parametrize("verb", [["forget", "--yes"], ["list"], ["export"], ["search", "x"]])
@pytest.mark.parametrize(("reference", "code"), [("beef", ExitCode.NOT_FOUND), ("", ExitCode.USAGE)])
def test_memories_of_a_run_that_nothing_stands_for(
    gateway: Gateway, verb: list[str], reference: str, code: ExitCode
) -> None:
    result = cadre("memory", *verb, "--run", reference)
    assert result.exit_code == code
    assert not any("/v1/memory" in asked for asked in gateway.asked)


def test_an_export_of_nothing_says_so(gateway: Gateway) -> None:
    result = cadre("memory", "export", "--user", "nobody")
    assert (result.exit_code, result.stdout, result.stderr) == (ExitCode.OK, "", "no memories fit\n")


# --- which run


def held(gateway: Gateway, call: str) -> None:
    ruled = {"call": call, "state": "approved", "verdict": "approved", "by": "ann", "at": 1.0}
    gateway.answer(f"GET /v1/approvals/{call}", {"call": call, "state": "pending"})
    gateway.answer(f"POST /v1/approvals/{call}", ruled)


def test_a_call_is_decided_by_its_whole_id_however_many_runs_are_newer(gateway: Gateway) -> None:
    gateway.answer("GET /v1/runs", {"runs": [{"id": ERASED}], "next": ERASED})
    call = f"{RUN}_1_0"
    held(gateway, call)
    result = cadre("approve", call)
    assert (result.exit_code, result.stdout) == (ExitCode.OK, f"{call} approved by ann\n")
    assert not any("/v1/runs?" in asked for asked in gateway.asked)


def test_a_beginning_is_refused_when_not_all_runs_were_looked_through(gateway: Gateway) -> None:
    """Of those that were, one begins so; of the others, who knows."""
    gateway.answer("GET /v1/runs", {"runs": [{"id": ERASED}], "next": ERASED})
    gateway.answer("GET /v1/runs?limit=200", {"runs": [{"id": RUN}], "next": ERASED})
    for reference in (RUN[:5], RUN[:5] + "_1_0"):
        result = cadre("approve", reference)
        assert (result.exit_code, result.stdout) == (ExitCode.USAGE, "")
        assert holds(result.stderr, "4,000", RUN[:5])
    assert not any("/v1/approvals" in asked for asked in gateway.asked)


def test_a_beginning_is_looked_for_on_all_pages(gateway: Gateway) -> None:
    gateway.answer("GET /v1/runs", {"runs": [{"id": ERASED}], "next": ERASED})
    gateway.answer(f"GET /v1/runs?limit=200&before={ERASED}", {"runs": [{"id": RUN}], "next": None})
    held(gateway, f"{RUN}_1_0")
    assert cadre("approve", RUN[:5] + "_1_0").exit_code == ExitCode.OK


def test_a_whole_id_of_no_run_is_not_looked_for_among_all(gateway: Gateway) -> None:
    result = cadre("show", ERASED)
    assert result.exit_code == ExitCode.NOT_FOUND
    assert gateway.asked == [f"GET /v1/runs/{ERASED}"]

"""Tests of what the gateway makes of headers and bodies before it asks anybody."""

import asyncio
import re
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cadre.engine.fold import fold
from cadre.journal.entry import ArrivalRecord, Entry
from cadre.journal.events import RunAccepted
from cadre.protocol.messages import Task
from cadre.protocol.topology import run_id_of
from cadre.protocol.usage import Budget
from cadre.spec.agent import AgentSpec
from cadre.spec.names import NAME
from cadre_gateway.requests import problems
from cadre_gateway.requests.body import CancelBody, Submission, parse, ruling, submission
from cadre_gateway.requests.idempotency import IdempotencyKey, idempotency_key
from cadre_gateway.requests.parameters import MAX_WAIT_SECONDS, resume_position, wait_seconds
from cadre_gateway.requests.problems import Problem, answer_deadline, note_progress
from cadre_gateway.requests.trace_link import trace_of
from cadre_gateway.starting.admission import new_run_id
from cadre_gateway.starting.fork import ForkBody, _task
from harness.patience import patience


def test_later_run_ids_sort_behind_earlier_ones() -> None:
    first = new_run_id()
    while time.time_ns() // 1_000_000 == int(first[:12], 16):
        pass
    second = new_run_id()
    assert first < second
    assert NAME.fullmatch(first)
    assert "_" not in first


@given(st.text(min_size=1, max_size=255), st.text(min_size=1, max_size=255))
def test_a_key_always_names_the_same_run(key: str, other: str) -> None:
    run = run_id_of("boss", "", key)
    assert run == run_id_of("boss", "", key)
    assert re.fullmatch("[0-9a-f]{32}", run)
    assert run != run_id_of("helper", "", key)
    assert (run == run_id_of("boss", "", other)) == (key == other)


OWNERS = [
    "",
    "user ann",
    "user bob",
    "key 0123456789ab",
    "schedule nightly",
    "by-hand nightly",
    "trigger nightly",
]


@given(st.text(min_size=1, max_size=255), st.text(min_size=1, max_size=255))
def test_no_key_of_one_owner_names_the_run_of_another(key: str, other: str) -> None:
    texts = (key, other, f"nightly\n{key}", f"schedule nightly\n{key}")
    runs = {(owner, text): run_id_of("boss", owner, text) for owner in OWNERS for text in texts}
    assert len(set(runs.values())) == len(runs)
    records = {
        (owner, text): IdempotencyKey(owner, text).record_of("r", "message") for owner in OWNERS for text in texts
    }
    assert len(set(records.values())) == len(records)


@pytest.mark.parametrize("key", ["", "k" * 256])
def test_a_key_of_no_use_is_refused(key: str) -> None:
    with pytest.raises(Problem, match="Idempotency-Key"):
        idempotency_key("", key, "start", b"{}")


def test_a_key_belongs_to_one_request() -> None:
    first = idempotency_key("user ann", "k", "start", b'{"agent": "boss", "task": "Look.", "max_steps": 3}')
    assert first is not None
    same = idempotency_key("user ann", "k", "start", b'{"max_steps":3,"task":"Look.","agent":"boss","stream":true}')
    assert same == first
    for what, body in (("start", b'{"agent": "boss", "task": "Look."}'), ("fork r1", b'{"at": 1}')):
        other = idempotency_key("user ann", "k", what, body)
        assert other is not None
        with pytest.raises(Problem, match="another key") as caught:
            other.check(first.digest)
        assert (caught.value.status, caught.value.code) == (422, "idempotency-key-reused")
        other.check("")  # of a run that an earlier version started


def test_a_correction_keeps_the_arguments_that_it_does_not_name() -> None:
    own = {"order": "A-1", "amount": 10}

    def corrected(**fields: Any) -> dict[str, Any] | None:
        return ruling(msgspec.json.encode({"verdict": "corrected", **fields}), None).arguments_of("pay", own)

    assert corrected(arguments={"amount": 5}) == {"order": "A-1", "amount": 5}
    assert corrected(arguments={"amount": 5}, tool="pay") == {"order": "A-1", "amount": 5}
    assert corrected(arguments={"amount": 5}, replace=True) == {"amount": 5}
    assert corrected(arguments={"text": "x"}, tool="note") == {"text": "x"}
    assert corrected(tool="note") is None


@pytest.mark.parametrize(
    "wrong",
    [None, "", "01-x", f"00-{'0' * 32}-b7ad6b7169203331-01", f"00-{'A' * 32}-b7ad6b7169203331-01"],
)
def test_a_missing_or_wrong_traceparent_links_to_nothing(wrong: str | None) -> None:
    """The run has its own trace, no matter who asks for it."""
    assert trace_of(wrong) is None


def test_a_right_traceparent_is_passed_on() -> None:
    given_one = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
    assert trace_of(given_one) == given_one


@pytest.mark.parametrize(
    ("prefer", "seconds"),
    [
        (None, 0.0),
        ("respond-async", 0.0),
        ("wait=5", 5.0),
        ("respond-async, Wait=7; x=1", 7.0),
        ("wait=nine", 0.0),
        ("wait=999999", MAX_WAIT_SECONDS),
    ],
)
def test_prefer_wait(prefer: str | None, seconds: float) -> None:
    assert wait_seconds(prefer) == seconds


def test_where_a_stream_goes_on() -> None:
    assert resume_position(None, None) == 0
    assert resume_position(None, 7) == 7
    assert resume_position("9", 7) == 9
    for wrong in ("-1", "x", "1.5", "²"):
        with pytest.raises(ValueError, match="Last-Event-ID"):
            resume_position(wrong, None)


def test_an_unknown_key_is_named_with_the_known_ones() -> None:
    with pytest.raises(Problem) as caught:
        submission(b'{"agent":"boss","task":"x","maxsteps":3}')
    assert "'maxsteps'" in caught.value.detail
    assert "max_steps" in caught.value.detail
    with pytest.raises(Problem, match="reason"):
        parse(b'{"why":"x"}', CancelBody)


def test_what_is_left_out_has_its_default() -> None:
    assert submission(b'{"agent":"boss","task":"x"}') == Submission(agent="boss", task="x")


def forked(began: Task, body: bytes) -> tuple[float | None, Budget | None]:
    """Seconds and budget of a fork at the first step of the run with that task."""
    spec = AgentSpec(name="boss", description="Leads.")
    event = RunAccepted(task=began, spec=spec, decided_by="tool_calling", deadline=began.deadline, budget=began.budget)
    entry = Entry(
        arrived=ArrivalRecord("Task"),
        run="r",
        agent="boss",
        n=1,
        cause="c",
        at=began.at + 5,
        events=[event],
    )
    task = _task(fold([entry], "r", "r"), "new", parse(body, ForkBody), 1000.0)
    return (None if task.deadline is None else round(task.deadline - task.at, 3)), task.budget


def test_a_fork_has_the_bounds_of_its_run_anew_or_its_own() -> None:
    free = Task(id="r:task", tree="r", run="r", at=1000.0, agent="boss", task="Go.")
    bound = msgspec.structs.replace(free, deadline=1060.0, budget=Budget(tokens=500, depth=1))
    assert forked(free, b'{"at":1}') == (None, None)
    assert forked(bound, b'{"at":1}') == (60, bound.budget)
    own = b'{"at":1,"deadline":9,"budget":{"steps":3}}'
    assert forked(free, own) == forked(bound, own) == (9, Budget(steps=3))
    assert forked(bound, b'{"at":1,"budget":{}}') == (60, None)
    assert forked(bound, b'{"at":1,"deadline":"10m"}') == (600, bound.budget)


# --- decisions and bounds


def test_the_header_says_who_decides() -> None:
    assert ruling(b'{"verdict": "approved", "by": "bob"}', "ann").by == "ann"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"verdict": "approve"}, "approved.*corrected.*rejected"),
        ({"verdict": "corrected"}, "arguments.*tool"),
        ({"verdict": "approved", "arguments": {}}, "leave them out"),
        ({"verdict": "rejected", "tool": "x"}, "leave them out"),
        ({"verdict": "approved", "replace": True}, "leave them out"),
        ({"verdict": "corrected", "arguments": [1]}, "arguments"),
        ({"verdict": "approved", "by": "a\nb"}, "printable"),
        ({"verdict": "approved", "by": "a" * 201}, "200"),
        ({"decision": "approve"}, "unknown key 'decision'; known keys: verdict, feedback"),
        ({}, "verdict"),
    ],
)
def test_a_decision_of_no_use_is_refused(body: dict[str, Any], problem: str) -> None:
    with pytest.raises(Problem, match=problem) as caught:
        ruling(msgspec.json.encode(body), None)
    assert caught.value.status == 422


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"deadline": 0}, r"deadline"),
        ({"deadline": -1}, r"deadline"),
        ({"deadline": "0s"}, r"deadline"),
        ({"deadline": "soon"}, r"deadline: 'soon' .* 90s"),
        ({"deadline": "600w"}, r"deadline: 600w\b"),
        ({"deadline": 1e12}, r"deadline"),
        ({"deadline": True}, r"deadline"),
        ({"budget": {"tokens": 0}}, r"budget\.tokens"),
        ({"budget": {"cost": -0.5}}, r"budget\.cost"),
        ({"budget": {"steps": 1.5}}, r"budget\.steps"),
        ({"budget": {"depth": -1}}, r"budget\.depth"),
        (
            {"budget": {"token": 5}},
            r"unknown key 'token' in budget; known keys: tokens, cost, steps, depth, calls, stored_mb",
        ),
        ({"budget": 5}, r"budget"),
        ({"additional_args": {"n": 1}}, r"unknown key 'additional_args'; known keys: .*\binputs\b"),
    ],
)
def test_bounds_of_no_use_are_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(Problem, match=problem) as caught:
        submission(msgspec.json.encode({"agent": "a", "task": "t", **fields}))
    assert caught.value.status == 422
    with pytest.raises(Problem, match=problem):
        parse(msgspec.json.encode({"at": 1, **fields}), ForkBody)


def test_an_empty_budget_is_none() -> None:
    made = submission(b'{"agent": "a", "task": "t", "budget": {}, "deadline": 1.5}')
    assert made.budget is not None
    assert made.budget.as_budget() is None
    assert made.deadline == 1.5


async def test_the_deadline_of_an_answer_is_one_of_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problems, "ANSWER_SECONDS", 0.2)

    async def silent() -> None:
        async with answer_deadline():
            note_progress()
            await asyncio.sleep(5)

    async with asyncio.timeout(patience()):
        async with answer_deadline():
            for _ in range(6):
                await asyncio.sleep(0.05)
                note_progress()
        with pytest.raises(TimeoutError):
            await silent()
        note_progress()  # no one limits it

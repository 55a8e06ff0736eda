"""The judge can fail: sound streams pass, and each way in which they could be wrong is found."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from chaos.adversary.audit import Message, hash_of
from chaos.steered.judge import Absence, Seen, Told, judge

Event = dict[str, Any]
Runs = dict[str, list[tuple[str, float, list[Event]]]]
"""By run: cause, time and events of each entry."""

MODEL: Event = {"type": "model.called"}


def booked(job: str) -> list[Event]:
    return [
        {"type": "tool.called", "call": f"b_{job}", "arguments": {"job": f"held.{job}"}},
        {"type": "tool.answered", "call": f"b_{job}"},
    ]


def sound() -> Runs:
    """Return a cancelled booking, a listener that got three messages, and three ticks."""
    task = {"type": "run.accepted", "task": {"task": "held"}}
    end = {"type": "run.finished", "state": "cancelled"}
    words = [{"type": "message.received", "text": text} for text in ("a", "b", "c")]
    runs: Runs = {
        "b": [
            ("b:task", 1.0, [task, *booked("first")]),
            ("b:2", 2.0, booked("second")),
            ("b:cancel", 3.0, [{"type": "cancel.requested"}]),
            ("b:4", 4.0, booked("back_second")),
            ("b:5", 5.0, [*booked("back_first"), end]),
        ],
        "l": [
            ("l:task", 10.0, [{"type": "run.accepted", "task": {"task": "listen heard"}}]),
            *((f"l:{at}", 11.0 + at, [word]) for at, word in enumerate(words)),
            ("l:end", 20.0, [{"type": "run.finished", "state": "success", "output": "heard"}]),
        ],
    }
    for count in (1, 2, 3):
        accepted = {"type": "run.accepted", "task": {"task": f"tick {count} {100 + 2 * count}"}}
        runs[f"t{count}"] = [(f"t{count}:task", 30.0, [accepted, {"type": "run.finished", "state": "success"}])]
    return runs


def streams(runs: Runs) -> dict[str, list[Message]]:
    messages: list[Message] = []
    for run, entries in runs.items():
        before = ""
        for n, (cause, at, events) in enumerate(entries, 1):
            head = {"run": run, "n": n, "cause": cause, "at": at, "events": events}
            body = json.dumps(head, separators=(",", ":")).encode()[:-1]
            before = hash_of(body, before)
            data = body + b',"hash":"%s"}' % before.encode()
            messages.append(Message(len(messages) + 1, f"cadre.run.0.{run}.{run}", data))
    return {"CADRE-0": messages}


def seen() -> Seen:
    told = {"b": [1, 2, 3, 4, 5], "l": [6, 7, 8, 9, 10]}
    return Seen(
        runs={"held": "b", "heard": "l"},
        streams=told,
        heard={"l": {seq: 10.5 + at for at, seq in enumerate(told["l"])}},
        ends={"b": ("cancelled", None), "l": ("success", "heard")},
        cancels={"b": [200, 200, 202]},
        told={"l": [Told("a", 200), Told("b", 202), Told("c", 200)]},
        wanted={"l": "heard"},
        index_away=[Absence("the index", 10.0, 16.0)],
        every=2.0,
        ticking=6.0,
    )


def found(change: Callable[[Runs], object] = bool, **fields: Any) -> list[str]:
    runs = sound()
    change(runs)
    return judge(streams(runs), replace(seen(), **fields), late=3.0)


def test_what_is_sound_passes() -> None:
    assert found() == []


def forget(run: str, kind: str) -> Callable[[Runs], object]:
    """Leaves the events of a kind out."""

    def change(runs: Runs) -> None:
        for _, _, events in runs[run]:
            events[:] = [one for one in events if one["type"] != kind]

    return change


def swapped(runs: Runs) -> None:
    first, second = runs["l"][1][2], runs["l"][2][2]
    first[:], second[:] = [*second], [*first]


def second_cancel(runs: Runs) -> None:
    runs["b"][3][2].insert(0, {"type": "cancel.requested"})


def no_way_back(runs: Runs) -> None:
    runs["b"][3][2][:] = []


def wrong_way_back(runs: Runs) -> None:
    runs["b"][3][2][:], runs["b"][4][2][:-1] = booked("back_first"), booked("back_second")


def tick_twice(runs: Runs) -> None:
    runs["t9"] = [("t9:task", 30.0, [runs["t2"][0][2][0], {"type": "run.finished", "state": "success"}])]


def tick_late(runs: Runs) -> None:
    runs["t3"][0][2][0] = {"type": "run.accepted", "task": {"task": "tick 3 108"}}


@pytest.mark.parametrize(
    "change",
    [
        second_cancel,
        no_way_back,
        wrong_way_back,
        swapped,
        forget("l", "message.received"),
        tick_twice,
        tick_late,
    ],
)
def test_a_journal_that_is_wrong_is_found(change: Callable[[Runs], object]) -> None:
    assert found(change)


def test_a_tick_that_was_left_out_is_found() -> None:
    assert found(lambda runs: runs.pop("t2"))


def test_a_run_that_was_not_asked_for_is_found() -> None:
    accepted: Event = {"type": "run.accepted", "task": {"task": "held stray"}}
    stray: list[Event] = [accepted, {"type": "run.finished"}]
    assert found(lambda runs: runs.update(s=[("s:task", 1.0, stray)]))


@pytest.mark.parametrize(
    "fields",
    [
        {"refused": ["run x was answered 404"]},
        {"runs": {"held": "b", "other": "l"}},
        {"streams": {"b": [1, 2, 4, 5], "l": [6, 7, 8, 9, 10]}},
        {"streams": {"b": [1, 2, 3, 4, 5], "l": [6, 7, 7, 8, 9, 10]}},
        {"cancels": {"b": [200, 500]}},
        {"told": {"l": [Told("a", 200), Told("b", 202)]}},
        {"told": {"l": [Told("a", 200), Told("b", 500), Told("c", 200)]}},
        {"heard": {"l": {7: 11.0, 8: 15.1, 9: 15.2}}},
        {"index_away": [Absence("the index", 40.0, 50.0)]},
        {"wanted": {"l": "something else"}},
        {"wanted": {"gone": "heard"}},
        {"ticking": 60.0},
        {"away": [Absence("loner", 5.0, 5.0)]},
    ],
)
def test_what_clients_saw_is_held_against_the_streams(fields: dict[str, Any]) -> None:
    assert found(**fields)

"""The deltas of each answer are its whole text, no matter what is lost, late or reported twice on the way."""

from typing import Any

import pytest

from cadre.client.events import AnswerTexts, Event


def called(purpose: str = "act", step: int = 1, attempt: int = 1, run: str = "r") -> Event:
    event = {"type": "model.called", "purpose": purpose, "step": step, "attempt": attempt, "cause": "c"}
    return Event("model.called", {"run": run, "agent": "a", "event": event})


def piece(seq: int, text: str, run: str = "r", **fields: Any) -> Event:
    data = {"run": run, "agent": "a", "step": 1, "attempt": 1, "purpose": "act", "text": text, "seq": seq}
    return Event("delta", {**data, **fields})


def answered(content: str, purpose: str = "act", run: str = "r", attempt: int = 1) -> Event:
    event = {
        "type": "model.answered",
        "purpose": purpose,
        "step": 1,
        "attempt": attempt,
        "content": content,
    }
    return Event("model.answered", {"run": run, "agent": "a", "event": event})


def passed_on(*events: Event) -> list[str]:
    """The text of each delta, and the type of each other event."""
    texts = AnswerTexts()
    passed = [one for event in events for one in texts.complete(event)]
    return [one.data["text"] if one.type == "delta" else one.type for one in passed]


CALLED, ANSWERED = "model.called", "model.answered"


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([called(), piece(1, "ab"), piece(2, "c"), answered("abc")], [CALLED, "ab", "c", ANSWERED]),
        ([called(), answered("abc")], [CALLED, "abc", ANSWERED]),
        ([called(), answered("")], [CALLED, ANSWERED]),
        # a piece was lost: the rest waits for the end
        ([called(), piece(1, "ab"), piece(3, "d"), answered("abcd")], [CALLED, "ab", "cd", ANSWERED]),
        # the beginning was lost
        ([called(), piece(2, "c"), piece(3, "d"), answered("abcd")], [CALLED, "abcd", ANSWERED]),
        # reported twice
        ([called(), piece(1, "ab"), piece(1, "ab"), answered("ab")], [CALLED, "ab", ANSWERED]),
        # late, behind the answer
        ([called(), piece(1, "ab"), answered("abc"), piece(2, "c")], [CALLED, "ab", "c", ANSWERED]),
        # the call itself was before the place that was gone on from
        ([piece(2, "c"), answered("abc")], ["abc", ANSWERED]),
        # an agent of an earlier version does not say what for
        ([called(), piece(1, "ab", purpose=""), answered("ab")], [CALLED, "ab", ANSWERED]),
        # a late piece of the plan is not the step's
        (
            [called("plan"), answered("p", "plan"), called(), piece(1, "p", purpose="plan"), answered("a")],
            [CALLED, "p", ANSWERED, CALLED, "a", ANSWERED],
        ),
        # an attempt that came to nothing
        (
            [
                called(),
                piece(1, "ab"),
                called(attempt=2),
                piece(1, "x", attempt=2),
                answered("xy", attempt=2),
            ],
            [CALLED, "ab", CALLED, "x", "y", ANSWERED],
        ),
        # two runs at once
        (
            [
                called(),
                called(run="s"),
                piece(1, "a"),
                piece(1, "b", "s"),
                answered("a"),
                answered("bc", run="s"),
            ],
            [CALLED, CALLED, "a", "b", ANSWERED, "c", ANSWERED],
        ),
    ],
)
def test_the_text_is_told_whole_and_once(events: list[Event], expected: list[str]) -> None:
    assert passed_on(*events) == expected


def test_a_delta_that_is_made_up_has_all_fields() -> None:
    texts = AnswerTexts()
    [rest, _] = texts.complete(answered("abc"))
    assert rest.data == piece(1, "abc").data
    assert rest.body is not None

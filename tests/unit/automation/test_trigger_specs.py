"""Triggers: what they listen to, what their runs are sent, and how their webhooks are signed."""

from typing import Any

import pytest

from cadre.automation.notice import SignatureInvalid, signature, verify
from cadre.automation.trigger import TriggerSpec
from cadre.errors import SpecError

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NOW = 1_614_265_330


def spec(**fields: Any) -> TriggerSpec:
    return TriggerSpec(**{"name": "orders", "agent": "clerk", "task": "x", "subject": "orders.>", **fields})


@pytest.mark.parametrize(
    ("pattern", "subject", "heard"),
    [
        ("orders.new", "orders.new", True),
        ("orders.new", "orders.new.eu", False),
        ("orders.*", "orders.new", True),
        ("orders.*", "orders", False),
        ("orders.>", "orders.new.eu", True),
        ("orders.>", "orders", False),
        (">", "anything", True),
    ],
)
def test_a_subject_matches_as_it_does_in_nats(pattern: str, subject: str, heard: bool) -> None:
    assert spec(subject=pattern).listens_to(subject) is heard


def test_a_task_has_what_arrived() -> None:
    one = spec(task="{{ payload.item }} at {{ subject }} ({{ id }}, {{ trigger }})")
    assert one.task_for(b'{"item": "apples"}', "m1", "orders.new") == "apples at orders.new (m1, orders)"
    assert spec(task="{{ payload }}").task_for(b"plain", "m1") == "plain"
    with pytest.raises(SpecError, match="'dict object' has no attribute 'item'"):
        one.task_for(b"{}", "m1")


def test_a_template_changes_nothing_and_reaches_nothing() -> None:
    for task in ("{{ ''.__class__.__mro__ }}", "{{ payload.append(1) }}", "{% include 'x' %}"):
        with pytest.raises(SpecError):
            spec(task=task).task_for(b"[1]", "m1")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"subject": None}, "subject, webhook: write one"),
        ({"subject": "orders..new"}, "is no subject"),
        ({"subject": "orders.>.new"}, "is no subject"),
        ({"task": ""}, "task: is empty"),
    ],
)
def test_a_wrong_trigger_is_explained(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        spec(**fields)


def test_the_signature_is_that_of_the_specification() -> None:
    found = signature(SECRET, "msg_p5jXN8AQM9LWM0D4loKWxJek", NOW, b'{"test": 2432232314}')
    assert found == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, None),
        ({"signatures": "v1,AAAA v1a,xyz"}, "none is right"),
        ({"signatures": ""}, "send the headers"),
        ({"message": "m2"}, "none is right"),
        ({"body": b"{ }"}, "none is right"),
        ({"timestamp": str(NOW + 1)}, "none is right"),
        ({"timestamp": "soon"}, "write Unix seconds"),
        ({"now": NOW + 301.0}, "over 300 s"),
        ({"now": NOW - 301.0}, "over 300 s"),
        ({"secret": "another"}, "none is right"),
    ],
)
def test_only_what_is_signed_passes(changes: dict[str, Any], message: str | None) -> None:
    good = signature(SECRET, "m1", NOW, b"{}")
    given = {
        "secret": SECRET,
        "message": "m1",
        "timestamp": str(NOW),
        "signatures": f"v1,wrong {good}",
        "body": b"{}",
        "now": float(NOW),
        **changes,
    }
    if message is None:
        verify(**given)
        return
    with pytest.raises(SignatureInvalid, match=message):
        verify(**given)


def test_of_a_triggers_task_its_own_text_is_the_makers_word() -> None:
    one = spec(
        task="Pay {{ payload.whom }}{% if payload.much %} 5000{% endif %} to Ann.",
        options={"inputs": {"account": "DE1"}},
        plan=["pay"],
    )
    standing = one.standing
    assert standing is not None
    assert (standing.source, standing.plan, standing.has_read) == ("trigger orders", ["pay"], True)
    assert standing.asked == ["Pay \n 5000\n to Ann.", '{"account":"DE1"}']
    assert spec(task="Do the day's work for {{ trigger }}.").standing is None

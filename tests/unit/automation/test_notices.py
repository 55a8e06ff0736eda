"""Tests of what notices tell of, to whom, and in which form."""

import re
from typing import Any

import msgspec
import pytest

from cadre.adapters.addresses import read_networks
from cadre.adapters.webhooks import WebhookFailed, WebhookSender
from cadre.automation.notice import (
    NoticeDelivery,
    NoticeSpec,
    budget_share,
    budget_warning,
    cloud_event,
    happened_in,
)
from cadre.errors import SpecError
from cadre.journal.entry import ArrivalRecord, Entry
from cadre.journal.events import AnyEvent, ApprovalRequested, RunFinished
from cadre.journal.run import Run
from cadre.protocol.usage import Budget, Usage

ENDED = RunFinished(state="success", output="done", steps=2, usage=Usage(5, 3, 1))
HELD = ApprovalRequested(call="r_1_0", name="pay", kind="tool", arguments={"amount": 5}, reason="always")


def spec(**fields: Any) -> NoticeSpec:
    return NoticeSpec(
        **{"name": "desk", "url": "https://example.org/hook", "secret_env": "CADRE_SECRET_DESK", **fields}
    )


def entry(*events: AnyEvent, run: str = "r") -> Entry:
    return Entry(
        arrived=ArrivalRecord("Task"),
        run=run,
        agent="boss",
        n=3,
        cause="c",
        at=7.0,
        events=list(events),
    )


def test_the_end_of_a_root_and_calls_that_wait_are_told() -> None:
    ended, held = happened_in(entry(ENDED, HELD))
    assert (ended.id, ended.type, ended.data["state"], ended.data["output"]) == (
        "r:finished",
        "run.finished",
        "success",
        "done",
    )
    assert (held.id, held.type, held.data["call"]) == ("r_1_0:approval", "approval.requested", "r_1_0")
    assert [one.type for one in happened_in(entry(ENDED, HELD, run="r_1_0"))] == ["approval.requested"]


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, True),
        ({"events": ["approval.requested"]}, False),
        ({"agents": ["boss"]}, True),
        ({"agents": ["helper"]}, False),
        ({"states": ["error", "success"]}, True),
        ({"states": ["error"]}, False),
    ],
)
def test_a_notice_is_filtered(fields: dict[str, Any], wanted: bool) -> None:
    (ended,) = happened_in(entry(ENDED))
    assert spec(**fields).wants(ended, "boss") is wanted


def test_a_budget_is_warned_of_once_when_it_is_crossed() -> None:
    def run(tokens: int) -> Run:
        return Run(id="r", tree="r", budget=Budget(tokens=100), usage=Usage(tokens, 0, 1))

    assert budget_share(run(79)) == 0.79
    warning = budget_warning(run(79), run(85), entry())
    assert warning is not None
    assert (warning.id, warning.data["share"]) == ("r:budget", 0.85)
    assert budget_warning(run(85), run(95), entry()) is None
    assert budget_warning(run(10), run(50), entry()) is None
    assert budget_share(Run(id="r", tree="r")) == 0.0


def test_the_body_is_a_cloud_event() -> None:
    (ended,) = happened_in(entry(ENDED))
    delivery = NoticeDelivery(notice="desk", **ended._asdict())
    found = msgspec.json.decode(cloud_event(delivery, "https://cadre.dev/deployments/cadre"))
    assert found["data"]["usage"]["input_tokens"] == 5
    del found["data"]
    assert found == {
        "specversion": "1.0",
        "id": "r:finished",
        "source": "https://cadre.dev/deployments/cadre",
        "type": "dev.cadre.run.finished",
        "subject": "r",
        "time": "1970-01-01T00:00:07Z",
        "datacontenttype": "application/json",
    }


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"url": "ftp://example.org"}, "url: "),
        ({"url": "https://user:x@example.org"}, "url: "),
        ({"secret_env": "whsec_a+b"}, "secret_env: .*CADRE_SECRET_"),
        ({"secret_env": "CADRE_MODEL_KEY"}, "begins with CADRE_SECRET_"),
    ],
)
def test_a_wrong_notice_is_explained(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        spec(**fields)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "10.0.0.1", "169.254.169.254", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"],
)
async def test_nothing_is_posted_to_a_private_address(host: str) -> None:
    with pytest.raises(WebhookFailed, match=re.escape(host.strip("[]"))):
        await WebhookSender(()).post(f"http://{host}:9/hook", b"{}", {})


async def test_the_checked_address_is_the_one_that_is_connected_to() -> None:
    """A name that answers otherwise when it is asked a second time gains nothing."""
    answers = iter([["192.0.2.1"], ["127.0.0.1"]])

    async def resolve(host: str, port: int) -> list[str]:
        return next(answers)

    with pytest.raises(WebhookFailed, match=r"192\.0\.2\.1"):
        await WebhookSender((), resolve).post("http://rebind.example/hook", b"{}", {})
    with pytest.raises(WebhookFailed) as caught:
        await WebhookSender(read_networks("X", "127.0.0.0/8"), resolve).post("http://rebind.example:1/", b"{}", {})
    assert "public internet" not in str(caught.value)
    assert next(answers, None) is None

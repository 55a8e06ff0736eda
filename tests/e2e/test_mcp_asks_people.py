"""A call by MCP that waits for a person: the client asks them, and the model that called decides nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from harness.patience import patience, until
from harness.people import decide, done
from harness.stack import Gateway, Service, Stack

pytest.importorskip("mcp")

from mcp import Client
from mcp.client import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp_types import (
    CallToolResult,
    ElicitRequestParams,
    ElicitResult,
    InputRequiredResult,
    InputResponses,
    TextContent,
)

TEAM = Path(__file__).parent / "calling"
ADMIN_KEY = "an-admin-key-of-more-than-32-characters"


@pytest.fixture(scope="module")
def more(stack: Stack) -> None:
    """Every gateway speaks MCP; one of them asks who calls."""
    stack.environment["CADRE_DOORS"] = "mcp"
    keys = {"CADRE_AUTH": "keys", "CADRE_ADMIN_KEY": ADMIN_KEY}
    stack.add("guarded", "cadre_gateway", start=False, **keys)
    stack.add("replica", "cadre_gateway", start=False)


@pytest.fixture
def books(tmp_path: Path) -> Path:
    return tmp_path / "books"


class Person:
    """A person at the client, who answers questions."""

    def __init__(self, action: str, content: dict[str, Any] | None = None) -> None:
        self.asked: list[str] = []
        self._answer = ElicitResult.model_validate({"action": action, "content": content})

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        self.asked.append(params.message)
        return self._answer


@contextlib.asynccontextmanager
async def connected(service: Service, person: Person | None = None, **headers: str) -> AsyncIterator[Client]:
    async with httpx2.AsyncClient(headers=headers, timeout=patience()) as http:
        transport = streamable_http_client(f"{service.url}/mcp", http_client=http)
        async with Client(transport, elicitation_callback=person) as client:
            yield client


def text_of(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


def bearer(guarded: Service, *roles: str) -> dict[str, str]:
    admin = {"Authorization": f"Bearer {ADMIN_KEY}"}
    wanted = {"name": "-".join(roles), "roles": roles}
    answer = httpx2.post(f"{guarded.url}/v1/keys", json=wanted, headers=admin, timeout=patience())
    assert answer.status_code == 201, answer.text
    return {"Authorization": f"Bearer {answer.json()['token']}"}


async def test_the_person_is_asked_and_the_call_ends_with_the_answer(gateway: Gateway, books: Path) -> None:
    person = Person("accept", {"confirm": True})
    async with connected(gateway.service, person) as client:
        answer = await client.call_tool("clerk", {"task": f"refund {books} 500"})
    assert (answer.is_error, text_of(answer)) == (False, "refunded 500")
    assert len(person.asked) == 1
    assert person.asked[0].splitlines()[0] == "Refund 500 €"
    assert str(books) in person.asked[0]
    assert done(books) == ["refund 500"]


@pytest.mark.parametrize(
    ("action", "content"), [("decline", None), ("accept", {"confirm": False, "feedback": "Too much."})]
)
async def test_a_no_is_what_the_agent_reads(
    gateway: Gateway, books: Path, action: str, content: dict[str, Any] | None
) -> None:
    person = Person(action, content)
    async with connected(gateway.service, person) as client:
        answer = await client.call_tool("clerk", {"task": f"refund {books} 501"})
    assert ("Too much." in text_of(answer)) is (content is not None)
    assert (len(person.asked), done(books)) == (1, [])


async def test_what_a_person_puts_off_waits_on(gateway: Gateway, books: Path) -> None:
    async with connected(gateway.service, Person("cancel")) as client:
        waits = await client.call_tool("clerk", {"task": f"refund {books} 502"})
        meta = waits.meta or {}
        assert (meta["cadre.dev/state"], done(books)) == ("waiting", [])
        call = f"{meta['cadre.dev/run']}_1_0"
        assert (await asyncio.to_thread(decide, gateway, call, "approved")).status_code == 200
        answer = await client.call_tool("cadre_get_run", {"run": meta["cadre.dev/run"], "wait_seconds": patience()})
    assert text_of(answer) == "refunded 502"


async def test_who_asks_for_a_run_is_asked_what_it_waits_for(gateway: Gateway, books: Path) -> None:
    run = await asyncio.to_thread(gateway.submit, "clerk", f"refund {books} 503")
    person = Person("accept", {"confirm": True})
    async with connected(gateway.service, person) as client:
        asked = {"run": run, "wait_seconds": 60.0}
        answer = await client.call_tool("cadre_get_run", asked)
    assert (text_of(answer), len(person.asked)) == ("refunded 503", 1)


async def test_a_client_that_asks_nobody_reads_that_a_person_decides(gateway: Gateway, books: Path) -> None:
    async with connected(gateway.service) as client:
        waits = await client.call_tool("clerk", {"task": f"refund {books} 504"})
        assert (waits.meta or {})["cadre.dev/state"] == "waiting"
        assert "cadre_decide" not in text_of(waits)
        run = (waits.meta or {})["cadre.dev/run"]
        assert not (await client.call_tool("cadre_cancel_run", {"run": run})).is_error
    assert done(books) == []


async def test_a_key_that_may_not_decide_has_nobody_asked(stack: Stack, gateway: Gateway, books: Path) -> None:
    guarded, person = stack.services["guarded"], Person("accept", {"confirm": True})
    async with connected(guarded, person, **bearer(guarded, "operator")) as operator:
        waits = await operator.call_tool("clerk", {"task": f"refund {books} 505"})
        assert (waits.meta or {})["cadre.dev/state"] == "waiting"
        run = (waits.meta or {})["cadre.dev/run"]
        answers: InputResponses = {f"{run}_1_0": ElicitResult(action="accept", content={"confirm": True})}
        forced = await operator.session.call_tool(
            "clerk", {"task": "any"}, input_responses=answers, request_state=run, allow_input_required=True
        )
        assert isinstance(forced, CallToolResult)
        assert (forced.meta or {})["cadre.dev/error"] == "forbidden"
        assert (person.asked, done(books)) == ([], [])
    async with connected(guarded, person, **bearer(guarded, "operator", "approver")) as both:
        answer = await both.call_tool("clerk", {"task": f"refund {books} 506"})
        assert text_of(answer) == "refunded 506"
        refused = await both.call_tool("cadre_decide", {"call": f"{run}_1_0", "verdict": "approved"})
        assert (refused.meta or {})["cadre.dev/error"] == "forbidden"
    admin = {"Authorization": f"Bearer {ADMIN_KEY}"}
    url, query = f"{guarded.url}/v1/audit", {"action": "mcp.call", "who": "operator-approver"}
    trail = httpx2.get(url, params=query, headers=admin, timeout=patience()).json()["entries"]
    assert [(one["detail"]["tool"], "call" in one["detail"]) for one in trail] == [
        ("cadre_decide", True),
        ("clerk", True),
    ]


async def test_the_answers_reach_the_run_at_any_gateway(stack: Stack, gateway: Gateway, books: Path) -> None:
    """The gateway that has the person asked is killed before they answer."""
    task, replica = {"task": f"refund {books} 507"}, stack.services["replica"]
    async with connected(gateway.service, Person("accept")) as client:
        asked = await client.session.call_tool("clerk", task, allow_input_required=True)
    assert isinstance(asked, InputRequiredResult)
    ((call, _),) = (asked.input_requests or {}).items()
    gateway.service.kill()
    answers: InputResponses = {call: ElicitResult(action="accept", content={"confirm": True})}
    async with connected(replica) as client:
        answer = await client.session.call_tool(
            "clerk",
            task,
            input_responses=answers,
            request_state=asked.request_state,
            allow_input_required=True,
        )
    gateway.service.start()
    assert isinstance(answer, CallToolResult)
    assert text_of(answer) == "refunded 507"
    assert done(books) == ["refund 507"]


async def test_a_state_names_no_run_of_another_agent(gateway: Gateway, books: Path) -> None:
    run = await asyncio.to_thread(gateway.submit, "clerk", f"refund {books} 508")

    async def waits() -> bool:
        return bool((await asyncio.to_thread(gateway.run, run))["approvals"])

    await until(waits)
    async with connected(gateway.service, Person("accept")) as client:
        for agent, state in (("teller", run), ("clerk", "made-up"), ("clerk", json.dumps({"run": run}))):
            answer = await client.session.call_tool(
                agent, {"task": "Hi"}, request_state=state, allow_input_required=True
            )
            assert isinstance(answer, CallToolResult)
            assert (answer.meta or {})["cadre.dev/error"] == "unknown-run"

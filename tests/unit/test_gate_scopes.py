"""Besides HTTP requests, the gate lets through the application's startup and shutdown, and nothing else."""

from typing import Any, cast

import pytest
from starlette.types import Message, Receive, Scope, Send

from cadre_gateway.access.gate import Access, Gate


class Inner:
    """The application behind the gate."""

    def __init__(self) -> None:
        self.scopes: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope["type"])


async def passed(kind: str) -> tuple[list[str], list[Message]]:
    """Return what the application was given and what the server was sent."""
    inner, sent = Inner(), list[Message]()

    async def receive() -> Message:
        return {"type": f"{kind}.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    gate = Gate(inner, cast(Access, None))
    scope: dict[str, Any] = {"type": kind, "path": "/v1/runs", "headers": []}
    await gate(scope, receive, send)
    return inner.scopes, sent


async def test_the_begin_and_the_end_of_the_application_pass() -> None:
    assert await passed("lifespan") == (["lifespan"], [])


async def test_a_websocket_is_closed_before_it_opens() -> None:
    scopes, sent = await passed("websocket")
    assert scopes == []
    assert [(one["type"], one["code"]) for one in sent] == [("websocket.close", 1008)]


@pytest.mark.parametrize("kind", ["webtransport", "telnet", ""])
async def test_what_is_unknown_is_refused(kind: str) -> None:
    with pytest.raises(RuntimeError):
        await passed(kind)

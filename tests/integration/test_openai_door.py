"""Tests of what the door for OpenAI's clients refuses, and how: no run is begun, and the error has the protocol's
form."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cadre.journal import events as ev
from cadre.protocol.usage import Usage
from harness.exposition import series_of
from harness.nats_server import NatsServer
from integration.gateway_world import CALLED, GatewayProcess, World, entered

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"


def chat(**fields: Any) -> bytes:
    return json.dumps({"model": "boss", "messages": [{"role": "user", "content": "Hi"}], **fields}).encode()


def response(**fields: Any) -> bytes:
    return json.dumps({"model": "boss", "input": "Hi", **fields}).encode()


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        (CHAT, b"{", 400, None),
        (CHAT, b"[]", 400, None),
        (CHAT, b"\xff\xfe", 400, None),
        (CHAT, b'{"model": "boss"}', 400, None),
        (CHAT, chat(messages=[]), 400, "messages"),
        (CHAT, chat(messages=[{"role": 5}]), 400, "messages[0].role"),
        (CHAT, chat(messages=[{"role": "user", "content": ""}]), 400, "messages[0].content"),
        (
            CHAT,
            chat(messages=[{"role": "user", "content": [{"type": "smell"}]}]),
            400,
            "messages[0].content[0]",
        ),
        (CHAT, chat(messages=[{"role": "tool", "content": "3", "tool_call_id": "nobodys_1_0"}]), 404, None),
        (CHAT, chat(messages=[{"role": "user", "content": "x" * 10_000_000}]), 413, None),
        (CHAT, chat()[:-1] + b', "metadata": ' + b"[" * 100_000, 400, "metadata"),
        (CHAT, chat(model="nobody"), 404, None),
        (CHAT, chat(n=2), 400, "n"),
        (CHAT, chat(tools=[{"type": "web_search"}]), 400, "tools[0]"),
        (CHAT, chat(tools=[{"type": "function", "function": {"name": "add"}}]), 400, "tools[0]"),
        (CHAT, chat(tools=[{"type": "function", "function": {"name": "a b"}}]), 400, "tools[0]"),
        (CHAT, chat(response_format={"type": "yaml"}), 400, "response_format"),
        (RESPONSES, b'{"model": "boss"}', 400, None),
        (RESPONSES, response(input=[]), 400, "input"),
        (RESPONSES, response(input=5), 400, "input"),
        (RESPONSES, response(input=[{"type": "spell"}]), 400, "input[0]"),
        (RESPONSES, response(text={"format": {"type": "yaml"}}), 400, "text.format"),
        (RESPONSES, response(previous_response_id="nonsense"), 404, None),
        (RESPONSES, response(previous_response_id="resp_0"), 404, None),
    ],
)
async def test_what_cannot_be_used_begins_no_run(
    world: World, path: str, body: bytes, status: int, param: str | None
) -> None:
    before, counted = (await world.http.get("/v1/runs")).json(), await _counted(world, path)
    answer = await world.http.post(path, content=body)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param
    assert answer.headers["x-should-retry"] == "false"
    assert (await world.http.get("/v1/runs")).json() == before
    assert await _counted(world, path) == {"": counted[""], "refused": counted["refused"] + 1}


async def _counted(world: World, path: str) -> dict[str, float]:
    """The requests that were taken and those that were refused: both begin at 0."""
    told = series_of((await world.http.get("/metrics")).text)
    found: dict[str, float] = {}
    for (name, labels), value in told.items():
        about = dict(labels)
        if name == "cadre_door_requests_total" and about["http_route"] == path:
            key = "refused" if about["error_type"] else ""
            found[key] = found.get(key, 0) + value
    return found


@pytest.mark.parametrize("header", ["sec-fetch-site", "origin"])
async def test_pages_of_other_sites_are_refused_in_the_protocols_form(world: World, header: str) -> None:
    value = {"sec-fetch-site": "cross-site", "origin": "https://elsewhere.example"}[header]
    answer = await world.http.post(CHAT, content=chat(), headers={header: value})
    assert (answer.status_code, answer.json()["error"]["type"]) == (403, "permission_error")


async def test_unknown_parameters_are_named(world: World) -> None:
    answer = await world.http.get("/v1/models", params={"colour": "red"})
    assert answer.status_code == 400
    assert "colour" in answer.json()["error"]["message"]


async def test_a_response_that_waits_for_its_agent_is_queued(world: World) -> None:
    """No one takes the task up; then its journal says how it went on."""
    begun = (await world.http.post(RESPONSES, content=response(background=True))).json()
    assert (begun["status"], begun["output"], begun["usage"]) == ("queued", [], None)
    run = begun["id"].removeprefix("resp_")
    scribe = world.scribe(run)
    await scribe.write(scribe.accepted("Hi"), CALLED)
    await world.listed(run)
    assert (await world.http.get(f"{RESPONSES}/{begun['id']}")).json()["status"] == "in_progress"
    await scribe.write(ev.RunFinished(state="max_steps_error", output="As far as I came.", steps=1, usage=Usage()))
    await world.listed(run, state="max_steps_error")
    ended = (await world.http.get(f"{RESPONSES}/{begun['id']}")).json()
    assert (ended["status"], ended["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    (item,) = [item for item in ended["output"] if item["type"] == "message"]
    assert item["content"][0]["text"] == "As far as I came."


async def test_a_retry_finds_the_run_that_no_agent_has_taken_up(world: World) -> None:
    """A client whose first try was not answered sends it again; the run is in the inbox all the while."""
    first = await world.http.post(RESPONSES, content=response(background=True, input="Again?"))
    retry = {"x-stainless-retry-count": "1"}
    again = await world.http.post(RESPONSES, content=response(background=True, input="Again?"), headers=retry)
    other = await world.http.post(RESPONSES, content=response(background=True, input="Other"), headers=retry)
    assert first.json()["id"] == again.json()["id"] != other.json()["id"]


@pytest.fixture(scope="module")
def closed(nats_server: NatsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway that speaks the native API alone."""
    one = GatewayProcess(nats_server.url, tmp_path_factory.mktemp("closed"), CADRE_DOORS="none")
    yield one
    one.kill()


async def test_a_door_may_be_closed(closed: GatewayProcess) -> None:
    async with entered(closed) as world:
        assert (await world.http.get("/v1/models")).status_code == 404
        assert (await world.http.get("/v1/runs")).status_code == 200

"""Agents behind user interfaces that speak AG-UI: the events, interrupts and their answers, kills. `tests/clients`
drives the stock client."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from harness.patience import patience
from harness.people import done
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "doors"
STORY = 'Once there was a host, and he told the same "story" each time: Ünique ☕ and long.'
Json = dict[str, Any]


@pytest.fixture
def books(tmp_path: Path) -> Path:
    return tmp_path / "books"


def asking(*texts: str, **fields: Any) -> Json:
    """A request whose messages are these texts, the user's and the assistant's in turns."""
    said = [
        {"id": str(index), "role": ("user", "assistant")[index % 2], "content": text}
        for index, text in enumerate(texts)
    ]
    return {
        "threadId": uuid4().hex,
        "runId": uuid4().hex,
        "messages": said,
        "tools": [],
        "context": [],
    } | fields


def events(gateway: Gateway, agent: str, wanted: Json) -> Iterator[Json]:
    url = f"{gateway.service.url}/agui/{agent}"
    with httpx2.stream("POST", url, json=wanted, timeout=patience()) as answer:
        assert answer.status_code == 200, answer.read()
        for line in answer.iter_lines():
            if line.startswith("data:"):
                yield json.loads(line[5:])


def turn(gateway: Gateway, agent: str, wanted: Json) -> list[Json]:
    return list(events(gateway, agent, wanted))


def types(told: list[Json]) -> list[str]:
    return [event["type"] for event in told]


def test_a_turn_begins_and_ends(gateway: Gateway) -> None:
    wanted = asking("Hi")
    told = turn(gateway, "host", wanted)
    assert told[0]["type"] == "RUN_STARTED"
    assert (told[0]["threadId"], told[0]["runId"]) == (wanted["threadId"], wanted["runId"])
    assert types(told)[-2:] == ["TEXT_MESSAGE_END", "RUN_FINISHED"]
    assert text_of(told) == "Hello!"
    assert (told[-1]["result"], told[-1]["outcome"]) == ("Hello!", {"type": "success"})
    assert told[-1]["usage"][0]["inputTokens"] > 0
    assert gateway.run(told[0]["metadata"]["cadre"]["run"])["session"] == wanted["threadId"]
    again = turn(gateway, "host", wanted)
    assert (steps(again), text_of(again), again[-1]) == (steps(told), "Hello!", told[-1])
    refused = gateway.request("POST", "/agui/host", json=wanted | {"messages": asking("Other")["messages"]})
    assert (refused.status_code, refused.json()["code"]) == (422, "idempotency-key-reused")


def steps(told: list[Json]) -> list[str]:
    """Return what is sent in addition to the text, which may come earlier while its model writes it."""
    return [name for name in types(told) if not name.startswith("TEXT_MESSAGE")]


def text_of(told: list[Json]) -> str:
    return "".join(event["delta"] for event in told if event["type"] == "TEXT_MESSAGE_CONTENT")


@pytest.mark.parametrize("kind", ["story", "broken story"])
def test_an_answer_is_told_while_the_model_writes_it(gateway: Gateway, kind: str) -> None:
    """Also where the first attempt is cut off in the middle and the second says the same."""
    told = turn(gateway, "host", asking(f"tell a {kind}"))
    assert text_of(told) == told[-1]["result"] == STORY
    assert types(told).count("TEXT_MESSAGE_CONTENT") > 1
    assert types(told).count("TEXT_MESSAGE_START") == types(told).count("TEXT_MESSAGE_END") == 1


def test_what_was_told_in_vain_is_replaced(gateway: Gateway) -> None:
    """The second attempt says something else."""
    wanted = asking("tell another story")
    told = turn(gateway, "host", wanted)
    assert text_of(told)
    assert STORY.startswith(text_of(told))
    assert types(told)[-3:] == ["TEXT_MESSAGE_END", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    answer = {"id": told[-3]["messageId"], "role": "assistant", "content": "It was all otherwise."}
    assert told[-2]["messages"] == [*wanted["messages"], answer]
    assert told[-1]["result"] == answer["content"]
    assert text_of(turn(gateway, "host", wanted)) == answer["content"]


def test_an_answer_survives_the_agent_that_told_it(gateway: Gateway, stack: Stack) -> None:
    told = []
    for event in events(gateway, "host", asking("tell a long story")):
        if event["type"] == "TEXT_MESSAGE_START":
            stack.services["host"].kill()
            stack.services["host"].start()
        told.append(event)
    assert text_of(told) == told[-1]["result"] == STORY


def test_a_thread_goes_on(gateway: Gateway) -> None:
    first = asking("my name is Iris", threadId="A thread: äöü!")
    turn(gateway, "host", first)
    more = asking("my name is Iris", "Noted.", "what is my name", threadId=first["threadId"])
    assert turn(gateway, "host", more)[-1]["result"] == "You are Iris."
    elsewhere = asking("my name is Rosa", "Noted.", "what is my name")
    run = turn(gateway, "host", elsewhere)[0]["metadata"]["cadre"]["run"]
    assert "my name is Rosa" in gateway.run(run, full="true")["memory"][0]["task"]


def test_a_thread_that_was_taken_back_is_what_its_client_sends(gateway: Gateway) -> None:
    """A message is edited, and everything behind it goes."""
    first = asking("my name is Iris")
    turn(gateway, "host", first)
    edited = asking("my name is Una", "Noted.", "what is my name", threadId=first["threadId"])
    told = turn(gateway, "host", edited)
    assert text_of(told) == "You are Una."
    run = gateway.run(told[0]["metadata"]["cadre"]["run"], full="true")
    assert "Iris" not in json.dumps(run["memory"])
    assert run["session"] == first["threadId"]


def test_members_are_told_and_an_interrupt_is_answered(gateway: Gateway, books: Path) -> None:
    wanted = asking(f"have clerk: refund {books} 500")
    told = turn(gateway, "chief", wanted)
    (begun,) = [event for event in told if event["type"] == "SUBAGENT_STARTED"]
    (paused,) = [event for event in told if event["type"] == "SUBAGENT_FINISHED"]
    (interrupt,) = told[-1]["outcome"]["interrupts"]
    assert (begun["name"], paused["outcome"]["type"]) == ("clerk", "suspended")
    assert paused["outcome"]["interruptIds"] == [interrupt["id"]]
    assert interrupt["subagentRunId"] == begun["subagentRunId"]
    assert (interrupt["message"], interrupt["metadata"].pop("reason") != "") == ("Refund 500 €", True)
    assert interrupt["metadata"] == {"tool": "refund", "arguments": {"file": str(books), "amount": 500}}
    payload = {"verdict": "corrected", "arguments": {"amount": 50}, "feedback": "Half of it."}
    resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": payload}]
    answer = asking(threadId=wanted["threadId"], resume=resume)
    rest = turn(gateway, "chief", answer)
    assert types(rest)[:2] == ["RUN_STARTED", "SUBAGENT_STARTED"]
    assert rest[-1]["result"].endswith("refunded 50")
    assert steps(turn(gateway, "chief", answer)) == steps(rest)  # sent again
    assert books.read_text() == "refund 50\n"


@pytest.mark.parametrize(
    "answer", [{"status": "cancelled"}, {"status": "resolved", "payload": {"verdict": "rejected"}}]
)
def test_an_interrupt_is_turned_down(gateway: Gateway, books: Path, answer: Json) -> None:
    (interrupt,) = turn(gateway, "clerk", asking(f"refund {books} 500"))[-1]["outcome"]["interrupts"]
    told = turn(gateway, "clerk", asking(resume=[{"interruptId": interrupt["id"], **answer}]))
    assert told[-1]["outcome"] == {"type": "success"}
    assert not books.exists()


def test_an_interrupt_is_answered_at_its_agent_alone(gateway: Gateway, books: Path) -> None:
    (interrupt,) = turn(gateway, "clerk", asking(f"refund {books} 500"))[-1]["outcome"]["interrupts"]
    resume = asking(resume=[{"interruptId": interrupt["id"], "status": "resolved"}])
    refused = gateway.request("POST", "/agui/host", json=resume)
    assert (refused.status_code, refused.json()["code"]) == (404, "unknown-run")
    assert not books.exists()
    turn(gateway, "clerk", resume)
    assert books.read_text() == "refund 500\n"


def test_tools_of_the_page(gateway: Gateway) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tools = [{"name": "weather", "description": "Tell the weather.", "parameters": schema}]
    wanted = asking("weather in Oslo", tools=tools)
    told = turn(gateway, "host", wanted)
    assert told[-1]["outcome"] == {"type": "success"}, "older clients refuse any other field"
    (call,) = [event["toolCallId"] for event in told if event["type"] == "TOOL_CALL_START"]
    (asked,) = [event for event in told if event["type"] == "TOOL_CALL_ARGS"]
    assert (asked["toolCallId"], json.loads(asked["delta"])) == (call, {"city": "Oslo"})
    said = [*wanted["messages"], {"id": "r", "role": "tool", "toolCallId": call, "content": "3 degrees"}]
    rest = turn(gateway, "host", asking(threadId=wanted["threadId"], messages=said, tools=tools))
    assert rest[-1]["result"] == "It is 3 degrees."


@pytest.mark.parametrize("order", ["word first", "result first", "at once"])
def test_a_person_and_the_page_are_asked_at_once(gateway: Gateway, books: Path, order: str) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    tools = [{"name": "weather", "description": "Tell the weather.", "parameters": schema}]
    wanted = asking(f"refund {books} and weather", tools=tools)
    told = turn(gateway, "clerk", wanted)
    (interrupt,) = told[-1]["outcome"]["interrupts"]
    calls = {one["toolCallName"]: one["toolCallId"] for one in told if one["type"] == "TOOL_CALL_START"}
    # Of two results of one call the last counts, and one of the agent's own tools is the client's account of it.
    given = [
        {"id": str(place), "role": "tool", "toolCallId": call, "content": text}
        for place, (call, text) in enumerate(
            [(calls["weather"], "1 degree"), (calls["weather"], "3 degrees"), (calls["refund"], "seen")]
        )
    ]
    result: Json = {"messages": [*wanted["messages"], *given]}
    word: Json = {
        "messages": wanted["messages"],
        "resume": [{"interruptId": interrupt["id"], "status": "resolved"}],
    }
    turns = {"word first": [word, result], "result first": [result, word], "at once": [word | result]}
    for one in turns[order]:
        told = turn(gateway, "clerk", asking(threadId=wanted["threadId"], tools=tools, **one))
    assert told[-1]["result"] == "refunded 900, 3 degrees"
    assert done(books) == ["refund 900"]


def test_pictures_and_documents(gateway: Gateway) -> None:
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfz0AEYBxVSF+FABJADveWkH6oAAAAAElFTkSuQmCC"
    image = {"type": "image", "source": {"type": "data", "value": pixel, "mimeType": "image/png"}}
    note = {"type": "document", "id": "note.txt"}
    note["source"] = {"type": "data", "value": "aGVsbG8=", "mimeType": "text/plain"}  # type: ignore[assignment]
    content = [{"type": "text", "text": "Look at the picture"}, image, note]
    told = turn(gateway, "host", asking(messages=[{"id": "1", "role": "user", "content": content}]))
    assert told[-1]["result"] == "1 image"
    files = gateway.request("GET", f"/v1/runs/{told[0]['metadata']['cadre']['run']}/files").json()["files"]
    assert [file["path"] for file in files] == ["note.txt"]


def test_a_failed_run_and_a_cancelled_one(gateway: Gateway, books: Path) -> None:
    failed = turn(gateway, "host", asking("break"))[-1]
    assert failed["type"] == "RUN_ERROR"
    assert "no such key" in failed["message"]
    wanted = asking(f"have clerk: refund {books} 500")
    begun = turn(gateway, "chief", wanted)[0]["metadata"]["cadre"]["run"]
    gateway.request("POST", f"/v1/runs/{begun}/cancel")
    assert gateway.finished(begun)["state"] == "cancelled"
    again = turn(gateway, "chief", wanted)
    assert again[-1]["type"] == "RUN_FINISHED"


@pytest.mark.parametrize(
    ("wanted", "status", "code"),
    [
        (b"{", 400, "invalid-request"),
        (json.dumps({"threadId": "t"}).encode(), 422, "invalid-request"),
        (json.dumps(asking()).encode(), 422, "invalid-request"),
        (json.dumps(asking("Hi", "Hello!")).encode(), 422, "invalid-request"),
        (json.dumps(asking("x" * 10_000_000)).encode(), 413, "too-large"),
        (json.dumps(asking("Hi", tools=[{"name": "a b", "description": ""}])).encode(), 422, "invalid-request"),
        (json.dumps(asking(resume=[{"interruptId": "0_1_0", "status": "resolved"}])).encode(), 404, "unknown-run"),
        (json.dumps(asking(messages=[{"id": "1", "role": "user", "content": [{"type": "smell"}]}])).encode(),
         422, "invalid-request"),
    ],
    ids=range(8),
)  # fmt: skip
def test_what_cannot_be_used_begins_nothing(gateway: Gateway, wanted: bytes, status: int, code: str) -> None:
    def runs() -> int:
        return len(gateway.request("GET", "/v1/runs", params={"limit": "500"}).json()["runs"])

    before = runs()
    answer = gateway.request("POST", "/agui/host", content=wanted)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.json()["detail"]
    assert runs() == before

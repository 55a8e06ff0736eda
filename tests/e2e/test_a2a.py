"""Agents as agents of the A2A protocol: what goes over the wire, approvals, kills, abuse. The stock client is driven by
`tests/clients`."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from harness.patience import eventually, patience
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "doors"
WORKING, WAITING, DONE = "TASK_STATE_WORKING", "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_COMPLETED"


@pytest.fixture
def books(tmp_path: Path) -> Path:
    return tmp_path / "books"


def message(text: str = "", *parts: dict[str, Any], **fields: str) -> dict[str, Any]:
    """The parameters of a message; `fields` name its task, context or id."""
    said = {"messageId": uuid4().hex, "role": "ROLE_USER", **fields}
    return {"message": said | {"parts": [*([{"text": text}] if text else []), *parts]}}


def call(gateway: Gateway, agent: str, method: str, params: dict[str, Any], **options: Any) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    answer = gateway.request("POST", f"/a2a/{agent}", json=body, **options)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert (found["jsonrpc"], found["id"]) == ("2.0", 7)
    return found


def result(gateway: Gateway, agent: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
    found = call(gateway, agent, method, params)
    assert "error" not in found, found
    answered: dict[str, Any] = found["result"]
    return answered


def code_of(gateway: Gateway, agent: str, method: str, params: dict[str, Any]) -> int:
    code: int = call(gateway, agent, method, params)["error"]["code"]
    return code


def streamed(
    gateway: Gateway, agent: str, params: dict[str, Any], method: str = "SendStreamingMessage"
) -> Iterator[dict[str, Any]]:
    body = {"jsonrpc": "2.0", "id": "s", "method": method, "params": params}
    url = f"{gateway.service.url}/a2a/{agent}"
    with httpx2.stream("POST", url, json=body, timeout=patience()) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream"), answer.read()
        for line in answer.iter_lines():
            if line.startswith("data:"):
                yield json.loads(line[5:])["result"]


def sending(params: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}).encode()


def state(task: dict[str, Any]) -> str:
    found: str = task["status"]["state"]
    return found


def runs(gateway: Gateway) -> int:
    return len(gateway.request("GET", "/v1/runs", params={"limit": "500"}).json()["runs"])


def ended(gateway: Gateway, agent: str, task: str) -> dict[str, Any]:
    """The task once it is over."""
    found: dict[str, Any] = {}

    def is_over() -> bool:
        found.update(result(gateway, agent, "GetTask", {"id": task}))
        return state(found) not in (WORKING, WAITING, "TASK_STATE_SUBMITTED")

    eventually(is_over, what="the task is over", state=lambda: found)
    return found


def test_a_card_says_where_and_how(gateway: Gateway) -> None:
    answer = gateway.request("GET", "/a2a/clerk/.well-known/agent-card.json")
    card = answer.json()
    assert (card["name"], card["description"]) == ("clerk", "Refunds orders.")
    assert {interface["url"] for interface in card["supportedInterfaces"]} == {f"{gateway.service.url}/a2a/clerk"}
    spoken = [(one["protocolBinding"], one["protocolVersion"]) for one in card["supportedInterfaces"]]
    assert spoken == [("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3")]
    assert card["capabilities"]["streaming"] is True
    assert gateway.request("GET", "/a2a/nobody/.well-known/agent-card.json").status_code == 404


def test_the_cards_of_all_agents_are_at_known_places(gateway: Gateway) -> None:
    answer = gateway.request("GET", "/.well-known/agent-card.json")
    assert answer.json()["name"] == "chief", "the agent that leads the others"
    assert not {"url", "preferredTransport", "protocolVersion"} & answer.json().keys(), "fields of 0.3"
    assert "max-age" in answer.headers["cache-control"]
    assert answer.headers["last-modified"]
    known = {"If-None-Match": answer.headers["etag"]}
    assert gateway.request("GET", "/.well-known/agent-card.json", headers=known).status_code == 304
    listed = [card["name"] for card in gateway.request("GET", "/a2a").json()["agents"]]
    assert listed == ["chief", "clerk", "host"]


def test_an_address_with_a_slash_behind_it(gateway: Gateway) -> None:
    params = message("Hi")
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    answer = gateway.request("POST", "/a2a/host/", json=body).json()
    assert state(answer["result"]["task"]) == "TASK_STATE_COMPLETED"


def test_a_message_of_files_alone_is_a_task(gateway: Gateway) -> None:
    part = {"raw": "aGk=", "mediaType": "application/x-some-type", "filename": "hi.bin"}
    task = result(gateway, "host", "SendMessage", message("", part))["task"]
    assert state(task) == "TASK_STATE_COMPLETED"


def test_tasks_are_listed_by_state_time_and_any_context(gateway: Gateway) -> None:
    context = f"a context: {uuid4().hex}"
    task = result(gateway, "host", "SendMessage", message("Hi", contextId=context))["task"]

    def listed(**wanted: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = result(gateway, "host", "ListTasks", wanted)["tasks"]
        return found

    eventually(lambda: bool(listed(contextId=context)), what="it is listed")
    assert [(one["id"], one["contextId"]) for one in listed(contextId=context)] == [(task["id"], context)]
    assert (task["id"], context) in [(one["id"], one["contextId"]) for one in listed()]
    assert listed(statusTimestampAfter="2099-01-01T00:00:00Z") == []
    assert task["id"] in [one["id"] for one in listed(statusTimestampAfter="2020-01-01T00:00:00Z")]
    for empty in ("TASK_STATE_REJECTED", "TASK_STATE_AUTH_REQUIRED"):
        assert listed(status=empty) == []
    assert listed(status="TASK_STATE_UNSPECIFIED")


def test_a_message_is_answered(gateway: Gateway) -> None:
    task = result(gateway, "host", "SendMessage", message("Hi there"))["task"]
    assert state(task) == DONE
    assert [part["text"] for part in task["artifacts"][0]["parts"]] == ["Hello!"]
    assert [said["parts"][0]["text"] for said in task["history"]] == ["Hi there"]
    assert gateway.run(task["id"])["output"] == "Hello!"
    brief = result(gateway, "host", "GetTask", {"id": task["id"], "historyLength": 0})
    assert "history" not in brief


def test_an_answer_with_fields_is_data(gateway: Gateway) -> None:
    task = result(gateway, "host", "SendMessage", message("as JSON"))["task"]
    assert task["artifacts"][0]["parts"][0]["data"] == {"name": "Ann", "age": 41}


def test_a_context_goes_on(gateway: Gateway) -> None:
    first = result(gateway, "host", "SendMessage", message("my name is Iris"))["task"]
    again = message("what is my name", contextId=first["contextId"])
    second = result(gateway, "host", "SendMessage", again)["task"]
    assert second["id"] != first["id"]
    assert second["artifacts"][0]["parts"][0]["text"] == "You are Iris."
    odd = message("Hi", contextId="what a context: äöü!")
    assert result(gateway, "host", "SendMessage", odd)["task"]["contextId"] == "what a context: äöü!"
    listed = result(gateway, "host", "ListTasks", {"contextId": first["contextId"]})
    assert [task["id"] for task in listed["tasks"]] == [second["id"], first["id"]]
    page = result(gateway, "host", "ListTasks", {"contextId": first["contextId"], "pageSize": 1})
    assert page["totalSize"] == 2
    rest = {"contextId": first["contextId"], "pageToken": page["nextPageToken"], "includeArtifacts": True}
    (older,) = result(gateway, "host", "ListTasks", rest)["tasks"]
    assert older["artifacts"][0]["parts"][0]["text"] == "Noted."


def test_the_same_message_begins_one_task(gateway: Gateway) -> None:
    sent, before = message("Hi"), runs(gateway)
    first, second = (result(gateway, "host", "SendMessage", sent)["task"]["id"] for _ in range(2))
    assert first == second
    assert runs(gateway) == before + 1
    sent["message"]["parts"] = [{"text": "Something else"}]
    assert code_of(gateway, "host", "SendMessage", sent) == -32602


def test_pictures_and_files_go_along(gateway: Gateway) -> None:
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfz0AEYBxVSF+FABJADveWkH6oAAAAAElFTkSuQmCC"
    shown = message("Look at the picture", {"raw": pixel, "mediaType": "image/png"})
    task = result(gateway, "host", "SendMessage", shown)["task"]
    assert task["artifacts"][0]["parts"][0]["text"] == "1 image"
    filed = message("Hi", {"raw": "aGVsbG8=", "filename": "note.txt", "mediaType": "text/plain"}, {"data": {"n": 3}})
    task = result(gateway, "host", "SendMessage", filed)["task"]
    listed = gateway.request("GET", f"/v1/runs/{task['id']}/files").json()
    assert [file["path"] for file in listed["files"]] == ["note.txt"]


def test_a_stream_tells_what_the_team_does(gateway: Gateway, books: Path) -> None:
    events = list(streamed(gateway, "chief", message(f"have clerk: refund {books} 5")))
    assert list(events[0]) == ["task"]
    told = [event["statusUpdate"] for event in events if "statusUpdate" in event]
    assert {update["status"]["state"] for update in told[:-1]} == {WORKING}
    said = " ".join(part["text"] for update in told[:-1] for part in update["status"]["message"]["parts"])
    assert "clerk" in said
    assert "refund" in said
    (artifact,) = [event["artifactUpdate"] for event in events if "artifactUpdate" in event]
    assert artifact["artifact"]["parts"][0]["text"].endswith("refunded 5")
    assert told[-1]["status"]["state"] == DONE
    assert code_of(gateway, "chief", "SubscribeToTask", {"id": told[-1]["taskId"]}) == -32004


@pytest.mark.parametrize(
    ("word", "booked"),
    [
        ({"text": "approve"}, "refund 500\n"),
        ({"text": "reject: too much"}, ""),
        ({"data": {"verdict": "approved", "arguments": {"amount": 50}}}, "refund 50\n"),
        ({"data": {"verdict": "approved"}}, "refund 500\n"),
    ],
    ids=["as text", "rejected", "corrected", "as data"],
)
def test_a_person_decides_below(gateway: Gateway, books: Path, word: dict[str, Any], booked: str) -> None:
    waiting = result(gateway, "chief", "SendMessage", message(f"have clerk: refund {books} 500"))["task"]
    assert state(waiting) == WAITING
    sentence, asked = (part.get("text") or part["data"] for part in waiting["status"]["message"]["parts"])
    assert (sentence, asked["tool"], asked["arguments"]["amount"]) == ("Refund 500 €", "refund", 500)
    assert asked["reason"]
    word = {"data": word["data"] | {"call": asked["call"]}} if "data" in word else word
    unclear = message("What is this about?", taskId=waiting["id"])
    assert code_of(gateway, "chief", "SendMessage", unclear) == -32602
    reply = message("", word, taskId=waiting["id"])
    task = result(gateway, "chief", "SendMessage", reply)["task"]
    assert state(task) == DONE
    assert (books.read_text() if books.exists() else "") == booked
    assert state(result(gateway, "chief", "SendMessage", reply)["task"]) == DONE  # sent again


def test_a_waiting_task_is_cancelled(gateway: Gateway, books: Path) -> None:
    task = result(gateway, "clerk", "SendMessage", message(f"refund {books} 500"))["task"]
    assert state(task) == WAITING
    cancelled = result(gateway, "clerk", "CancelTask", {"id": task["id"]})
    assert state(cancelled) == "TASK_STATE_CANCELED"
    assert code_of(gateway, "clerk", "CancelTask", {"id": task["id"]}) == -32002
    late = message("approve", taskId=task["id"])
    assert state(result(gateway, "clerk", "SendMessage", late)["task"]) == "TASK_STATE_CANCELED"
    more = message("Do something else", taskId=task["id"])
    assert code_of(gateway, "clerk", "SendMessage", more) == -32004
    assert not books.exists()


def test_a_failed_run_is_a_failed_task(gateway: Gateway) -> None:
    task = result(gateway, "host", "SendMessage", message("break"))["task"]
    assert state(task) == "TASK_STATE_FAILED"
    assert task["status"]["message"]["parts"][0]["text"]


def test_a_killed_gateway_begins_nothing_twice(gateway: Gateway, stack: Stack, books: Path) -> None:
    """The client whose gateway dies sends its message again, and has the one task; another finds it by its id."""
    sent, before = message(f"have clerk: refund {books} 700"), runs(gateway)
    stack.services["clerk"].signal(signal.SIGSTOP)
    events = streamed(gateway, "chief", sent)
    task = next(events)["task"]["id"]
    gateway.service.kill()
    with pytest.raises(httpx2.HTTPError):
        list(events)
    stack.services["clerk"].signal(signal.SIGCONT)
    gateway.service.start()
    gateway.wait_offered(3)
    waiting = result(gateway, "chief", "SendMessage", sent)["task"]
    assert (waiting["id"], state(waiting)) == (task, WAITING)
    follower = streamed(gateway, "chief", {"id": task}, "SubscribeToTask")
    assert state(next(follower)["task"]) == WAITING
    gateway.service.kill()
    gateway.service.start()
    gateway.wait_offered(3)
    reply = message("approve", taskId=task) | {"configuration": {"returnImmediately": True}}
    result(gateway, "chief", "SendMessage", reply)
    over = ended(gateway, "chief", task)
    assert over["artifacts"][0]["parts"][0]["text"].endswith("refunded 700")
    assert books.read_text() == "refund 700\n"
    assert runs(gateway) == before + 1


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", -32700),
        (b"\xff\xfe", -32700),
        (b"[" * 100_000, -32600),
        (b"[]", -32600),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "GetTask"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "DoMagic"}', -32601),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {}}', -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "nobody"}}', -32001),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {"pageSize": 0}}', -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {"pageToken": "gone"}}', -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard"}', -32007),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ListTaskPushNotificationConfigs"}', -32602),
        (sending(message("x" * 10_000_000)), -32602),
        (sending(message("", {"mediaType": "x"})), -32602),
    ],
    ids=range(14),
)
def test_what_cannot_be_used_begins_nothing(gateway: Gateway, body: bytes, code: int) -> None:
    before = runs(gateway)
    answer = gateway.request("POST", "/a2a/host", content=body)
    assert answer.json()["error"]["code"] == code, answer.text
    assert answer.json()["error"]["message"]
    assert runs(gateway) == before


def test_other_versions_and_agents_are_refused(gateway: Gateway) -> None:
    old = call(gateway, "host", "SendMessage", message("Hi"), headers={"A2A-Version": "7.0"})
    assert old["error"]["code"] == -32009
    assert code_of(gateway, "nobody", "SendMessage", message("Hi")) == -32602
    body = {"jsonrpc": "2.0", "id": 7, "method": "SendMessage", "params": message("Hi")}
    asked = gateway.request("POST", "/a2a/host", json=body, params={"A2A-Version": "7.0"})
    assert asked.json()["error"]["code"] == -32009
    listed = gateway.request("GET", "/a2a/host/tasks", params={"A2A-Version": "1.0", "pageSize": "1"})
    assert listed.status_code == 200, listed.text
    patched = call(gateway, "host", "SendMessage", message("Hi"), headers={"A2A-Version": "1.0.7"})
    task = patched["result"]["task"]["id"]
    assert code_of(gateway, "clerk", "GetTask", {"id": task}) == -32001


def test_plain_http(gateway: Gateway, books: Path) -> None:
    def ask(method: str, path: str, **options: Any) -> tuple[int, Any]:
        answer = gateway.request(method, f"/a2a/clerk{path}", **options)
        return answer.status_code, answer.json()

    status, sent = ask("POST", "/message:send", json=message(f"refund {books} 500"))
    assert (status, state(sent["task"])) == (200, WAITING)
    task = sent["task"]["id"]
    reply = message("approve", taskId=task)
    url = f"{gateway.service.url}/a2a/clerk/message:stream"
    with httpx2.stream("POST", url, json=reply, timeout=patience()) as answer:
        told = [json.loads(line[5:]) for line in answer.iter_lines() if line.startswith("data:")]
    assert told[-1]["statusUpdate"]["status"]["state"] == DONE
    status, found = ask("GET", f"/tasks/{task}", params={"historyLength": 0})
    assert (status, found["artifacts"][0]["parts"][0]["text"], "history" in found) == (
        200,
        "refunded 500",
        False,
    )
    status, page = ask("GET", "/tasks", params={"pageSize": 1, "status": DONE})
    assert (status, [one["id"] for one in page["tasks"]]) == (200, [task])
    for method, path, options, code, reason in (
        ("POST", f"/tasks/{task}:cancel", {}, 400, "TASK_NOT_CANCELABLE"),
        ("GET", f"/tasks/{task}:subscribe", {}, 400, "UNSUPPORTED_OPERATION"),
        ("GET", "/tasks/nobody", {}, 404, "TASK_NOT_FOUND"),
        ("GET", "/tasks", {"params": {"pageSize": 0}}, 422, "INVALID_PARAMS"),
        ("POST", "/message:send", {"content": b"["}, 400, "JSON_PARSE_ERROR"),
        ("POST", "/message:send", {"json": {}}, 422, "INVALID_PARAMS"),
    ):
        status, error = ask(method, path, **options)
        assert (status, error["error"]["details"][0]["reason"]) == (code, reason), error


def test_version_0_3(gateway: Gateway, books: Path) -> None:
    said: dict[str, Any] = {"kind": "message", "messageId": uuid4().hex, "role": "user"}
    said["parts"] = [{"kind": "text", "text": f"refund {books} 500"}]
    waiting = result(gateway, "clerk", "message/send", {"message": said})
    assert (waiting["kind"], waiting["status"]["state"]) == ("task", "input-required")
    question = waiting["status"]["message"]
    assert (question["kind"], question["role"], question["parts"][1]["kind"]) == ("message", "agent", "data")
    word = {**said, "messageId": uuid4().hex, "taskId": waiting["id"]}
    word["parts"] = [{"kind": "text", "text": "approve"}]
    told = list(streamed(gateway, "clerk", {"message": word}, "message/stream"))
    assert (told[-1]["kind"], told[-1]["final"]) == ("status-update", True)
    task = result(gateway, "clerk", "tasks/get", {"id": waiting["id"]})
    assert task["artifacts"][0]["parts"] == [{"kind": "text", "text": "refunded 500"}]
    assert code_of(gateway, "clerk", "tasks/cancel", {"id": task["id"]}) == -32002
    file = {"kind": "file", "file": {"bytes": "aGVsbG8=", "name": "note.txt", "mimeType": "text/plain"}}
    more = {**said, "messageId": uuid4().hex, "parts": [{"kind": "text", "text": "Hi"}, file]}
    begun = result(gateway, "host", "message/send", {"message": more, "configuration": {"blocking": False}})
    listed = gateway.request("GET", f"/v1/runs/{begun['id']}/files").json()
    assert [one["path"] for one in listed["files"]] == ["note.txt"]

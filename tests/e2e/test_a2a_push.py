"""Push notifications of A2A: who reads what, with which headers, past failing receivers and killed gateways."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from e2e.test_a2a import DONE, WAITING, call, code_of, message, result, state
from harness.patience import eventually, patience
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "doors"


class Push(NamedTuple):
    """A request that came to a receiver."""

    task: dict[str, Any]
    headers: dict[str, str]


class Receiver:
    """Takes push notifications, once it has answered what it is asked to."""

    def __init__(self) -> None:
        self.taken: queue.Queue[Push] = queue.Queue()
        self.answers: list[int] = []
        self.refused = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status = outer.answers.pop(0) if outer.answers else 200
                if status == 200:
                    headers = {name.lower(): text for name, text in self.headers.items()}
                    outer.taken.put(Push(body["task"], headers))
                else:
                    outer.refused.set()
                self.send_response(status)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/told"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def next(self) -> Push:
        return self.taken.get(timeout=patience())

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    one = Receiver()
    yield one
    one.close()


@pytest.fixture(scope="module")
def more(stack: Stack) -> None:
    stack.environment["CADRE_NOTICE_PRIVATE"] = "127.0.0.0/8"


def sent(receiver: Receiver, text: str, **config: Any) -> dict[str, Any]:
    """A message whose task is reported to the receiver."""
    told = {"url": receiver.url, "token": "t0ken", **config}
    return message(text) | {"configuration": {"returnImmediately": True, "taskPushNotificationConfig": told}}


def pushes(gateway: Gateway, agent: str, task: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = result(gateway, agent, "ListTaskPushNotificationConfigs", {"taskId": task})["configs"]
    return found


def test_a_receiver_is_told_of_questions_and_of_the_end(gateway: Gateway, receiver: Receiver, tmp_path: Path) -> None:
    auth = {"scheme": "Bearer", "credentials": "s3cret"}
    task = result(gateway, "clerk", "SendMessage", sent(receiver, f"refund {tmp_path / 'b'} 500", authentication=auth))[
        "task"
    ]["id"]
    asked = receiver.next()
    assert (asked.task["id"], state(asked.task)) == (task, WAITING)
    assert asked.headers["x-a2a-notification-token"] == "t0ken"
    assert asked.headers["authorization"] == "Bearer s3cret"
    assert asked.headers["content-type"] == "application/a2a+json"
    (kept,) = pushes(gateway, "clerk", task)
    assert kept["authentication"] == {"scheme": "Bearer"}, "nobody is shown credentials"
    result(gateway, "clerk", "SendMessage", message("approve", taskId=task))
    ended = receiver.next()
    assert state(ended.task) == DONE
    assert ended.task["artifacts"]
    eventually(lambda: pushes(gateway, "clerk", task) == [], what="the address is forgotten")


def test_a_short_task_is_told_of_too(gateway: Gateway, receiver: Receiver) -> None:
    for _ in range(3):
        result(gateway, "host", "SendMessage", sent(receiver, "Hi there"))
        assert state(receiver.next().task) == DONE


def test_a_message_sent_again_is_told_of_once(gateway: Gateway, receiver: Receiver) -> None:
    params = sent(receiver, "my name is Iris")
    first = result(gateway, "host", "SendMessage", params)["task"]["id"]
    receiver.next()
    eventually(lambda: pushes(gateway, "host", first) == [], what="the address is forgotten")
    result(gateway, "host", "SendMessage", sent(receiver, "Hi there"))
    assert receiver.next().task["id"] != first


def test_a_receiver_that_fails_and_a_gateway_that_dies_delay_it(gateway: Gateway, receiver: Receiver) -> None:
    receiver.answers = [500]
    task = result(gateway, "host", "SendMessage", sent(receiver, "Hi there"))["task"]["id"]
    assert receiver.refused.wait(patience())
    gateway.service.kill()
    gateway.service.start()
    assert receiver.next().task["id"] == task


def test_addresses_are_made_shown_and_deleted(gateway: Gateway, receiver: Receiver, tmp_path: Path) -> None:
    waiting = message(f"refund {tmp_path / 'b'} 700")
    task = result(gateway, "clerk", "SendMessage", waiting)["task"]["id"]
    place = f"/a2a/clerk/tasks/{task}/pushNotificationConfigs"
    made = gateway.request("POST", place, json={"id": "mine", "url": receiver.url, "token": "a"}).json()
    assert made == {"taskId": task, "id": "mine", "url": receiver.url, "token": "a"}
    assert state(receiver.next().task) == WAITING, "it waits already"
    assert gateway.request("GET", f"{place}/mine").json() == made
    assert gateway.request("GET", place).json()["configs"] == [made]
    old = {"taskId": task, "pushNotificationConfig": {"id": "old", "url": receiver.url}}
    assert call(gateway, "clerk", "tasks/pushNotificationConfig/set", old)["result"] == old
    listed = call(gateway, "clerk", "tasks/pushNotificationConfig/list", {"id": task})["result"]
    assert [one["pushNotificationConfig"]["id"] for one in listed] == ["mine", "old"]
    which = {"id": task, "pushNotificationConfigId": "old"}
    assert call(gateway, "clerk", "tasks/pushNotificationConfig/get", which)["result"] == old
    assert call(gateway, "clerk", "tasks/pushNotificationConfig/delete", which)["result"] is None
    for _ in range(2):
        assert gateway.request("DELETE", f"{place}/mine").status_code == 200
    assert pushes(gateway, "clerk", task) == []
    assert gateway.request("GET", f"{place}/mine").status_code == 404


@pytest.mark.parametrize(
    "config",
    [{"url": "ftp://x.example"}, {"url": "https://x.example", "token": "a\nb"}, {"url": ""}, {"token": "a"}],
)
def test_what_cannot_be_told_is_refused(gateway: Gateway, config: dict[str, Any], tmp_path: Path) -> None:
    task = result(gateway, "clerk", "SendMessage", message(f"refund {tmp_path / 'b'} 700"))["task"]["id"]
    wanted = {"taskId": task, **config}
    assert code_of(gateway, "clerk", "CreateTaskPushNotificationConfig", wanted) == -32602
    wanted = {"taskId": "nobody", "url": "https://x.example"}
    assert code_of(gateway, "clerk", "CreateTaskPushNotificationConfig", wanted) == -32001


def test_the_card_says_so(gateway: Gateway) -> None:
    card = gateway.request("GET", "/a2a/clerk/.well-known/agent-card.json").json()
    assert card["capabilities"]["pushNotifications"] is True

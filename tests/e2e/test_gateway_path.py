"""A gateway below a path, behind proxies that strip it and that do not: API, doors, links, the console's files."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin

import httpx2
import pytest
from openai import OpenAI

from cadre.client import Client
from harness.command import Commands
from harness.patience import patience
from harness.reverse_proxy import ReverseProxy
from harness.stack import Gateway, Stack

PREFIX = "/team/agents"
AGENTS = ["helper"]
ADMIN_KEY = "0123456789abcdef" * 4


@pytest.fixture(scope="module")
def more(stack: Stack) -> None:
    stack.environment |= {"CADRE_GATEWAY_PATH": PREFIX, "CADRE_DOORS": "openai,a2a,agui,mcp"}


@pytest.fixture(scope="module", params=[True, False], ids=["stripped", "as it came"])
def url(request: pytest.FixtureRequest, gateway: Gateway) -> Iterator[str]:
    """The address at a proxy."""
    with ReverseProxy(lambda: gateway.service.url, PREFIX, strips=request.param) as proxy:
        yield proxy.url


def host_of(url: str) -> str:
    return url.removesuffix(PREFIX)


def asked(method: str, url: str, **options: Any) -> httpx2.Response:
    return httpx2.request(method, url, timeout=patience(), verify=False, **options)


def test_runs_are_followed_by_the_links_that_are_answered(url: str) -> None:
    begun = asked("POST", f"{url}/v1/runs", json={"agent": "helper", "task": "say hello"})
    assert begun.status_code == 202, begun.text
    links = begun.json()["links"]
    assert begun.headers["location"] == links["self"] == f"{PREFIX}/v1/runs/{begun.json()['id']}"
    events = asked("GET", urljoin(url, links["events"]))
    assert events.headers["content-type"].startswith("text/event-stream")
    assert "run.finished" in events.text
    assert asked("GET", urljoin(url, links["self"])).json()["state"] == "success"
    assert asked("POST", urljoin(url, links["cancel"])).status_code != 404


def test_the_client_asks_below_the_path(url: str) -> None:
    with Client(url) as client:
        assert client.start("helper", "say hello").result() is not None


def test_commands_ask_below_the_path(url: str, cadre: Commands) -> None:
    ended = cadre("run", "helper", "say hello", CADRE_GATEWAY_URL=url)
    assert ended.returncode == 0, ended.stderr


def test_a_path_with_encoded_letters_is_the_same(url: str) -> None:
    run = asked("POST", f"{url}/v1/runs", json={"agent": "helper", "task": "say hello"}).json()["id"]
    missing = asked("GET", f"{host_of(url)}{PREFIX}/v1/runs/{run}/files/no%20such%2Ffile%C3%A9.txt")
    assert missing.json()["code"] == "unknown-file", missing.text


def test_the_description_says_where_it_is(url: str) -> None:
    found = asked("GET", f"{url}/openapi.json").json()
    assert [server["url"] for server in found["servers"]] == [PREFIX]


def test_the_doors_are_below_it(url: str) -> None:
    openai = OpenAI(base_url=f"{url}/v1", api_key="any", timeout=patience())
    assert [model.id for model in openai.models.list()] == ["helper"]
    said = openai.chat.completions.create(model="helper", messages=[{"role": "user", "content": "say hello"}])
    assert said.choices[0].message.content
    for card_url in (f"{url}/.well-known/agent-card.json", f"{url}/a2a/helper/.well-known/agent-card.json"):
        card = asked("GET", card_url).json()
        assert {one["url"] for one in card["supportedInterfaces"]} == {f"{url}/a2a/helper"}
    message = {"messageId": f"m-{url}", "role": "ROLE_USER", "parts": [{"text": "say hello"}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    answer = asked("POST", card["supportedInterfaces"][0]["url"], json=call).json()
    assert answer["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    client = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}
    accept = {"Accept": "application/json, text/event-stream"}
    assert "serverInfo" in asked("POST", f"{url}/mcp", json=begin, headers=accept).text


@pytest.mark.parametrize("page", ["", "/"])
def test_the_console_names_files_that_are_there(url: str, page: str) -> None:
    answer = asked("GET", f"{url}{page}")
    named = re.findall(r'(?:href|src)="(/[^"]+)"', answer.text)
    assert len(named) == 3
    for one in named:
        assert one.startswith(f"{PREFIX}/console/")
        assert asked("GET", f"{host_of(url)}{one}").status_code == 200
    assert f'name="cadre-path" content="{PREFIX}"' in answer.text
    again = asked("GET", f"{url}{page}", headers={"If-None-Match": answer.headers["etag"]})
    assert again.status_code == 304


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/v1/agents", "/metrics", ""])
def test_who_comes_past_the_proxy_is_answered_with_and_without_the_path(gateway: Gateway, path: str) -> None:
    for prefix in ("", PREFIX):
        assert gateway.request("GET", f"{prefix}{path or '/'}").status_code == 200
    assert gateway.request("GET", f"{PREFIX}s{path or '/'}").status_code == 404


def test_a_sign_in_stays_below_the_path(stack: Stack) -> None:
    service = stack.add("asking", "cadre_gateway", CADRE_AUTH="keys", CADRE_ADMIN_KEY=ADMIN_KEY)
    with ReverseProxy(lambda: service.url, PREFIX) as proxy, httpx2.Client(verify=False) as browser:
        key = {"Authorization": f"Bearer {ADMIN_KEY}"}
        signed = browser.post(f"{proxy.url}/v1/session", headers=key)
        assert f"Path={PREFIX}/" in signed.headers["set-cookie"]
        assert browser.get(f"{proxy.url}/v1/session").status_code == 200
        out = browser.delete(f"{proxy.url}/v1/session")
        assert f"Path={PREFIX}/" in out.headers["set-cookie"]
        assert browser.get(f"{proxy.url}/v1/session").status_code == 401
    service.terminate()


def test_a_path_that_cannot_be_is_refused(stack: Stack) -> None:
    environment = {**stack.environment, "CADRE_GATEWAY_PATH": "agents"}
    command = [sys.executable, "-m", "cadre_gateway"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=patience(), check=False)
    assert ended.returncode == 2
    assert "CADRE_GATEWAY_PATH" in ended.stderr

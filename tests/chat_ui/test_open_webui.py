"""Open WebUI as its makers publish it, in a real Chromium: agents are its models, a chat is a session, what the team
does is thought, a held call is decided in the chat or behind the link."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Locator, Page, expect, sync_playwright

from harness.exposition import series_of, total
from harness.nats_server import free_port
from harness.patience import eventually, patience
from harness.people import done
from harness.stack import Gateway, Stack

ROOT = Path(__file__).parents[2]
TEAM = ROOT / "tests" / "e2e" / "doors"
PROGRAM = ROOT / "build" / "open-webui-venv" / "bin" / "open-webui"
PICTURES = ROOT / "build" / "chat-ui"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        stack.model(TEAM / "script.yaml")
        for name in ("chief", "clerk", "host"):
            stack.agent(TEAM / f"{name}.yaml", start=False)
        stack.tools(TEAM / "tools.py", start=False)
        yield stack.open_gateway(3)


@pytest.fixture(scope="module")
def chats(gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an Open WebUI that has heard of the gateway, and of nothing else."""
    folder, port = tmp_path_factory.mktemp("open-webui"), free_port()
    environment = {
        **os.environ,
        "DATA_DIR": str(folder),
        "WEBUI_SECRET_KEY": "only-for-this-test",
        "WEBUI_AUTH": "False",
        "OPENAI_API_BASE_URL": f"{gateway.service.url}/v1",
        "OPENAI_API_KEY": "none",
        "ENABLE_FORWARD_USER_INFO_HEADERS": "true",
        # It asks no one else, and loads no models.
        "ENABLE_OLLAMA_API": "False",
        "RAG_EMBEDDING_ENGINE": "openai",
        "OFFLINE_MODE": "True",
        "HF_HUB_OFFLINE": "1",
        "ANONYMIZED_TELEMETRY": "false",
    }
    log, url = folder / "log", f"http://127.0.0.1:{port}"
    argv = [str(PROGRAM), "serve", "--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(argv, cwd=folder, env=environment, stdout=output, stderr=output)

    def answers() -> bool:
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            return httpx2.get(f"{url}/health", timeout=2).status_code == 200
        except httpx2.HTTPError:
            return False

    try:
        eventually(answers, within=patience(300), what="Open WebUI answers", state=log.read_text)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=patience())


@pytest.fixture(scope="module")
def page(chats: str) -> Iterator[Page]:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is on PATH; the chat program is NOT tested")
    expect.set_options(timeout=1000 * patience(60))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--disable-quic"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(1000 * patience(60))
        page.goto(chats)
        page.get_by_role("button", name="Okay, Let's Go!").click()
        yield page
        browser.close()


def begin(page: Page, chats: str, agent: str) -> None:
    """Opens a new chat with the agent."""
    page.goto(chats)
    page.get_by_role("button", name=re.compile("Selected model")).click()
    options = page.get_by_role("option")
    expect(options).to_have_text([re.compile(name) for name in ("chief", "clerk", "host")])
    options.filter(has_text=agent).click()
    expect(page.get_by_role("button", name=f"Selected model: {agent}")).to_be_visible()


def say(page: Page, text: str) -> Locator:
    """Sends the message; returns the answer to it, which may still be written."""
    messages = page.locator("[id^=message-]:not(#message-input-container)")
    before = messages.count()
    page.locator("#chat-input").click()
    page.keyboard.type(text)
    page.keyboard.press("Enter")
    expect(messages).to_have_count(before + 2)
    return messages.last


def runs_of(gateway: Gateway, agent: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = gateway.request("GET", "/v1/runs", params={"agent": agent}).json()["runs"]
    return found


def picture(page: Page, name: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png")


def test_a_chat_is_a_session_and_its_title_costs_no_run(page: Page, chats: str, gateway: Gateway) -> None:
    begin(page, chats, "host")
    expect(say(page, "Hello there, my name is Ravi and I am new here")).to_contain_text("Noted.")
    expect(page).to_have_title(re.compile("^Hello there, my name is / "))
    expect(say(page, "what is my name?")).to_contain_text("You are Ravi.")
    chat = page.url.rpartition("/")[2]

    def requests() -> float:
        told = series_of(gateway.request("GET", "/metrics").text)
        return total(told, "cadre_door_requests_total", http_route="/v1/chat/completions")

    eventually(lambda: requests() > 3, what="it asks for a title and more behind the chat", state=requests)
    runs = runs_of(gateway, "host")
    assert [(run["task"], run["session"]) for run in runs] == [
        ("what is my name?", chat),
        ("Hello there, my name is Ravi and I am new here", chat),
    ]


def test_an_answer_appears_while_the_model_writes_it(page: Page, chats: str, gateway: Gateway) -> None:
    begin(page, chats, "host")
    answer = say(page, "tell a long story")
    expect(answer).to_contain_text("Once there")
    (run,) = [run for run in runs_of(gateway, "host") if run["task"] == "tell a long story"]
    assert run["state"] == "running"
    expect(answer).to_contain_text("each time: Ünique ☕ and long.")
    assert gateway.finished(run["id"])["state"] == "success"


def test_a_call_is_decided_in_the_chat_and_the_doings_are_thoughts(
    page: Page, chats: str, gateway: Gateway, tmp_path: Path
) -> None:
    books = tmp_path / "books"
    begin(page, chats, "chief")
    question = say(page, f"have clerk: refund {books} 500")
    expect(question).to_contain_text("Waiting for your word")
    question.get_by_text("Thought for").click()
    expect(question).to_contain_text("asks clerk")
    assert done(books) == []
    answer = say(page, "approve")
    expect(answer).to_contain_text("refunded 500")
    picture(page, "approved")
    assert done(books) == ["refund 500"]
    assert sum(str(books) in run["task"] for run in runs_of(gateway, "chief")) == 1


def test_a_call_is_decided_behind_the_link(page: Page, chats: str, gateway: Gateway, tmp_path: Path) -> None:
    """A person who then says so in the chat hears how it went on."""
    books = tmp_path / "books"
    begin(page, chats, "chief")
    question = say(page, f"have clerk: refund {books} 600")
    with page.context.expect_page() as opened:
        question.get_by_role("link", name="approvals").click()
    console = opened.value
    card = console.get_by_role("article").filter(has_text=str(books))
    card.get_by_role("button", name="Approve").click()
    eventually(lambda: done(books) == ["refund 600"], what="it is done", state=lambda: done(books))
    console.close()
    (run,) = [run for run in runs_of(gateway, "chief") if str(books) in run["task"]]
    gateway.finished(run["id"])
    expect(say(page, "approved")).to_contain_text("refunded 600")
    assert [one["id"] for one in runs_of(gateway, "chief") if one["session"] == run["session"]] == [run["id"]]


def test_a_connection_may_speak_the_responses_api(page: Page, chats: str, gateway: Gateway, tmp_path: Path) -> None:
    """The last test here: all chats from now on go by it."""
    token = httpx2.post(f"{chats}/api/v1/auths/signin", json={"email": "", "password": ""}).json()["token"]
    about = {
        "ENABLE_OPENAI_API": True,
        "OPENAI_API_BASE_URLS": [f"{gateway.service.url}/v1"],
        "OPENAI_API_KEYS": ["none"],
        "OPENAI_API_CONFIGS": {"0": {"enable": True, "api_type": "responses"}},
    }
    headers = {"Authorization": f"Bearer {token}"}
    httpx2.post(f"{chats}/openai/config/update", json=about, headers=headers).raise_for_status()
    begin(page, chats, "host")
    answer = say(page, "tell a slow story")
    expect(answer).to_contain_text("Once there")
    (run,) = [run for run in runs_of(gateway, "host") if run["task"] == "tell a slow story"]
    assert run["state"] == "running"
    expect(answer).to_contain_text("each time: Ünique ☕ and long.")
    expect(page).to_have_title(re.compile("^tell a slow story / "))
    expect(say(page, "my name is Ravi")).to_contain_text("Noted.")
    expect(say(page, "what is my name?")).to_contain_text("You are Ravi.")
    assert not [run for run in runs_of(gateway, "host") if run["task"].startswith("###")]
    picture(page, "responses")
    books = tmp_path / "books"
    begin(page, chats, "chief")
    say(page, f"have clerk: refund {books} 500")

    def held() -> list[Any]:
        found: list[Any] = gateway.request("GET", "/v1/approvals").json()["approvals"]
        return [one for one in found if str(books) in str(one)]

    eventually(lambda: len(held()) == 1, what="the call waits", state=held)
    expect(say(page, "approve")).to_contain_text("refunded 500")
    assert done(books) == ["refund 500"]

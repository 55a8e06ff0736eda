"""The tools of the browser, each on a real page in a real Chromium."""

import asyncio
import os
import re
import signal
import threading
from typing import Any

import pytest

from browser.conftest import NewCall
from cadre.adapters.addresses import AddressRefused
from cadre.tool import File, ToolContext
from cadre_browser import (
    answer_dialog,
    choose_option,
    click,
    click_at,
    close_popups,
    close_tab,
    go_back,
    go_to,
    look,
    press_key,
    read_page,
    scroll_down,
    scroll_up,
    search_item_ctrl_f,
    switch_tab,
    text_exists,
    write,
)
from cadre_browser.sessions import BrowserFailed, BrowserReopened, sessions
from harness.texts import holds
from integration.web_server import Answer, WebServer


async def test_a_visit(web: WebServer, call: NewCall) -> None:
    told = await go_to(f"{web.url}/shop.html", call())
    assert told.startswith(f"At {web.url}/shop.html (Shop), scrolled to 0 of ")
    assert await text_exists("Accept cookies?", call())
    # The banner takes the click, and no one says so: only the screenshot would show it.
    await click("Buy now", call())
    assert await text_exists("The basket is empty", call())
    await close_popups(call())
    assert not await text_exists("Accept cookies?", call())
    await click("Buy now", call(), kind="button")
    assert "One lamp in the basket" in await read_page(call())
    assert "scrolled to 800 of" in await scroll_down(call(), num_pixels=800)
    assert "scrolled to 500 of" in await scroll_up(call(), num_pixels=300)
    found = await search_item_ctrl_f("opening hours", call(), nth_result=2)
    assert holds(found, "'opening hours'", "2")
    assert "scrolled to 0" not in found
    with pytest.raises(BrowserFailed, match="'opening hours' is there 2 times"):
        await search_item_ctrl_f("opening hours", call(), nth_result=3)
    assert await click("Floor lamp", call(), kind="link") == f"At {web.url}/lamp.html?floor (Desk lamp)."
    assert (await go_back(call())).startswith(f"At {web.url}/shop.html")
    with pytest.raises(BrowserFailed, match="Chandelier"):
        await click("Chandelier", call())


async def test_forms_keys_and_dialogs(web: WebServer, call: NewCall) -> None:
    await go_to(f"{web.url}/shop.html", call())
    await click("Accept", call())
    await write("Ada", call(), into="Name")
    await press_key("Backspace", call())
    await write("a!", call())
    await choose_option("red", call())
    held = await click("Greet", call())
    assert "dialog and waits: 'Hello Ada!'" in held
    assert "screenshot" not in await look(call())
    await answer_dialog(True, call())
    await click("Clear", call())
    await close_popups(call())
    assert await text_exists("Kept", call())
    await click("Clear", call())
    await answer_dialog(True, call())
    assert await text_exists("Emptied", call())
    with pytest.raises(BrowserFailed, match="no dialog"):
        await answer_dialog(True, call())
    with pytest.raises(ValueError, match="no key 'Hyper'"):
        await press_key("Hyper", call())


async def test_tabs_and_places(web: WebServer, call: NewCall) -> None:
    await go_to(f"{web.url}/shop.html", call())
    await click("Accept", call())
    assert (await click("In a new tab", call())).endswith("(Desk lamp), tab 2 of 2.")
    assert "tab 1 of 2" in await switch_tab(1, call())
    await switch_tab(2, call())
    assert "(Shop)" in await close_tab(call())
    seen = await look(call())
    shot = seen["screenshot"]
    assert isinstance(shot, File)
    assert shot.media_type == "image/png"
    assert (int.from_bytes(shot.data[16:20]), int.from_bytes(shot.data[20:24])) == (1000, 1350)
    web.pages["/spot"] = Answer(
        b"<title>no</title><body style='margin:0'><div style='width:90px;height:90px' onclick='document.title=\"hit\"'>"
    )
    await go_to(f"{web.url}/spot", call())
    assert "(hit)" in await click_at(45, 45, call())


async def test_what_comes_down_lies_in_the_workspace(web: WebServer, call: NewCall) -> None:
    web.pages["/prices.csv"] = Answer(b"lamp,30\n", "text/csv")
    await go_to(f"{web.url}/shop.html", call())
    await click("Accept", call())
    told = await click("Prices", call())
    told += (await look(call()))["page"]
    assert "Downloaded to downloads/prices.csv (8 bytes)." in told
    assert (await call().workspace.read("downloads/prices.csv")).data == b"lamp,30\n"


async def test_a_page_reaches_no_private_address(web: WebServer, call: NewCall, browsers: pytest.MonkeyPatch) -> None:
    browsers.setenv("CADRE_BROWSER_PRIVATE", "")
    for address in (
        f"{web.url}/shop.html",
        "http://169.254.169.254/",
        "http://localhost:1/",
        "http://[::1]/",
    ):
        with pytest.raises(BrowserFailed, match=re.escape(address)) as refused:
            await go_to(address, call())
        assert isinstance(refused.value.__cause__, AddressRefused)
    for address in ("file:///etc/passwd", "chrome://version", "javascript:alert(1)", "data:text/html,x"):
        with pytest.raises(BrowserFailed, match=re.escape(address)) as refused:
            await go_to(address, call())
        assert isinstance(refused.value.__cause__, AddressRefused)
    assert web.asked == []


async def test_a_page_that_is_open_to_it_leads_nowhere_else(web: WebServer, call: NewCall) -> None:
    """Redirects, scripts, images, frames and sockets of a page go through the same guard."""
    private = f"http://127.0.0.2:{web.port}"
    web.pages["/away"] = Answer(status=302, headers={"Location": f"{private}/secret"})
    web.pages["/inside"] = Answer(
        f"""<title>waits</title><iframe src="{private}/frame"></iframe><img src="{private}/image"><script>
        new WebSocket("ws://127.0.0.2:{web.port}/socket");
        fetch("{private}/fetched", {{mode: "no-cors"}}).then(a => a.status || 0).finally(() => document.title = "done");
        </script>""".encode()
    )
    await go_to(f"{web.url}/away", call())
    assert private.removeprefix("http://").partition(":")[0] in await read_page(call())
    assert "(done)" in await go_to(f"{web.url}/inside", call())
    assert {asked.path for asked in web.asked} - {"/favicon.ico"} == {"/away", "/inside"}


# --- death


async def kill_chromium(context: ToolContext) -> None:
    async with sessions().of(context) as session:
        assert session._chromium is not None
        os.kill(session._chromium.pid, signal.SIGKILL)


async def signed_in(web: WebServer, call: NewCall) -> None:
    web.pages["/sign-in"] = Answer(b"<title>in</title>", headers={"Set-Cookie": "user=ada; Path=/; HttpOnly"})
    await go_to(f"{web.url}/sign-in", call())
    await go_to(f"{web.url}/shop.html", call())
    await click("Accept", call())
    await click("In a new tab", call())
    await switch_tab(1, call())
    await scroll_down(call(), num_pixels=700)


async def test_a_killed_browser_is_opened_again_where_it_was(web: WebServer, call: NewCall) -> None:
    await signed_in(web, call)
    await kill_chromium(call())
    with pytest.raises(BrowserReopened) as error:
        await click("Buy now", call())
    assert holds(str(error.value), f"{web.url}/shop.html", "700")
    told = (await look(call()))["page"]
    assert "scrolled to 700" in told
    assert not await text_exists("One lamp in the basket", call())
    assert "tab 1 of 2" in told
    cookies: list[Any] = []
    web.pages["/who"] = lambda path: Answer(b"<title>who</title>")
    async with sessions().of(call()) as session:
        assert session._chromium is not None
        cookies = (await session._run(lambda: session._chromium.cdp("Storage.getCookies")))["cookies"]  # type: ignore[union-attr]
    assert [(one["name"], one["value"], one["httpOnly"]) for one in cookies] == [("user", "ada", True)]


async def test_a_look_tells_of_the_death(web: WebServer, call: NewCall) -> None:
    await go_to(f"{web.url}/lamp.html", call())
    await kill_chromium(call())
    seen = await look(call())
    assert f"{web.url}/lamp.html" in seen["page"]
    assert "screenshot" in seen
    assert "[" not in (await look(call()))["page"]


async def test_a_run_without_a_browser_of_its_own_gets_one_where_another_process_had_it(
    web: WebServer, call: NewCall
) -> None:
    await go_to(f"{web.url}/lamp.html", call())
    sessions().close()
    sessions.cache_clear()
    told = await go_to(f"{web.url}/shop.html", call())
    assert holds(told, f"{web.url}/lamp.html", f"{web.url}/shop.html", "(Shop)")


async def test_a_browser_that_dies_at_work_is_told_of(web: WebServer, call: NewCall) -> None:
    web.pages["/never"] = Answer(b"<title>x</title>", until=(until := threading.Event()))
    await go_to(f"{web.url}/lamp.html", call())
    loading = asyncio.create_task(go_to(f"{web.url}/never", call()))
    await asyncio.sleep(1)
    session = sessions()._sessions["run1"]
    assert session._chromium is not None
    os.kill(session._chromium.pid, signal.SIGKILL)
    with pytest.raises(BrowserFailed):
        await loading
    until.set()
    assert "opened again" in (await look(call()))["page"]


# --- how many, and how long


async def test_each_run_has_its_own_browser_at_once(web: WebServer, call: NewCall) -> None:
    def of(run: str) -> ToolContext:
        return ToolContext(call_id=call().call_id, run=run, tree="run1", workspace=call().workspace)

    told = await asyncio.gather(*(go_to(f"{web.url}/lamp.html?{run}", of(run)) for run in ("a", "b")))
    assert [f"lamp.html?{run}" in text for run, text in zip("ab", told, strict=True)] == [True, True]
    shown = await asyncio.gather(*(look(of(run)) for run in ("a", "b")))
    assert [f"?{run} " in seen["page"] for run, seen in zip("ab", shown, strict=True)] == [True, True]


async def test_browsers_are_bounded_and_close_when_idle(
    web: WebServer, call: NewCall, browsers: pytest.MonkeyPatch
) -> None:
    browsers.setenv("CADRE_BROWSER_SESSIONS", "1")
    browsers.setenv("CADRE_BROWSER_IDLE_SECONDS", "1")
    await go_to(f"{web.url}/lamp.html", call())
    first = sessions()._sessions["run1"]._chromium
    other = ToolContext(run="run2", tree="run2", workspace=call().workspace)
    await go_to(f"{web.url}/lamp.html", other)
    assert first is not None
    assert not first.is_alive
    assert list(sessions()._sessions) == ["run2"]
    await asyncio.sleep(1.3)
    assert list(sessions()._sessions) == []
    assert not first.folder.exists()

"""The console below a path of its host name, behind a proxy that strips it and one that does not, in a real browser."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from browser_console.observed import Errors
from harness.patience import patience
from harness.reverse_proxy import ReverseProxy
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parents[1] / "e2e" / "held"
ADMIN_KEY = "0123456789abcdef" * 4
PAGES = (
    *("overview", "runs", "chat", "approvals", "approvals?view=decided", "team", "statistics", "automation"),
    *("memory", "dead-letters", "system"),
)

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        stack.environment |= {"CADRE_GATEWAY_PATH": "/agents"}
        stack.model(Path(__file__).parent / "script.yaml")
        for name in ("chief", "clerk"):
            stack.agent(TEAM / f"{name}.yaml", start=False)
        stack.tools(TEAM / "tools.py", start=False)
        stack.open_gateway(2)
        yield Gateway(stack.add("asking", "cadre_gateway", CADRE_AUTH="keys", CADRE_ADMIN_KEY=ADMIN_KEY))


@pytest.mark.parametrize("strips", [True, False])
@pytest.mark.parametrize("page_path", ["/", ""])
def test_the_console_is_whole_below_a_path(
    browser: Browser, gateway: Gateway, errors: Errors, tmp_path: Path, *, strips: bool, page_path: str
) -> None:
    books = tmp_path / "books"
    with ReverseProxy(lambda: gateway.service.url, "/agents", strips=strips) as proxy:
        context = browser.new_context()
        page = context.new_page()
        errors.watch(page)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{proxy.url}{page_path}")
        page.get_by_label("API key").fill(ADMIN_KEY)
        page.get_by_role("dialog").get_by_role("button", name="Sign in").click()
        page.get_by_role("link", name="Runs").click()
        page.get_by_role("button", name="New run").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Agent").select_option("chief")
        dialog.get_by_label("Task").fill(f"have clerk: refund {books} 500")
        dialog.get_by_role("button", name="Start").click()
        held = page.get_by_role("treeitem").filter(has_text="refund").filter(has_text="waits for approval")
        expect(held).to_be_visible(timeout=1000 * patience(60))
        held.click()
        expect(page.locator(".meta .live")).to_have_text("live")
        page.get_by_role("button", name=re.compile("^Approve$")).click()
        expect(page.locator(".run-head .badge")).to_have_text("success")
        with context.expect_page() as opened:
            page.get_by_role("link", name="trace", exact=True).click()
        expect(opened.value.locator("body")).to_contain_text("chief")
        run = page.url.rpartition("/")[2].partition("?")[0]
        for name in (*PAGES, f"compare/{run}/{run}"):
            page.goto(f"{proxy.url}{page_path}#/{name}")
            expect(page.locator("#main h1, #main h2").first).to_be_visible()
            page.wait_for_load_state("networkidle")
        made = page.request.put(
            f"{proxy.url}/v1/triggers/orders",
            data={"agent": "clerk", "task": "x", "webhook": {"secret_env": "CADRE_SECRET_X"}},
            headers={"Authorization": f"Bearer {ADMIN_KEY}"},
        )
        assert made.ok, made.text()
        page.goto(f"{proxy.url}{page_path}#/automation")
        expect(page.get_by_role("article")).to_contain_text(f"POST {proxy.url}/v1/triggers/orders")
        page.goto(f"{proxy.url}{page_path}#/runs")
        page.get_by_label("Words").fill("refund")
        expect(page.locator(".runs tbody a").first).to_be_visible()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("API key")).to_be_visible()
        context.close()
        strays = [url for url in asked if not url.startswith(proxy.url) and not url.startswith("data:")]
        assert strays == []
    errors.forgive("401", "503")  # this deployment has no memory
    assert errors == []

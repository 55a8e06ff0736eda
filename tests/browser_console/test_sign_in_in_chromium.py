"""Signing in at the console by the page of an OpenID provider, in a real browser."""

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from browser_console.observed import Errors, Pictures
from harness.oidc_provider import CLIENT_ID, CLIENT_SECRET, OidcProviderServer
from harness.stack import Gateway, Stack

ADMIN_KEY = "0123456789abcdef" * 4

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def provider() -> Iterator[OidcProviderServer]:
    server = OidcProviderServer()
    server.people = {"ann": {"roles": ["people"]}, "mallory": {}}
    yield server
    server.close()


@pytest.fixture(scope="module")
def gateway(provider: OidcProviderServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        service = stack.add(
            "gateway",
            "cadre_gateway",
            CADRE_AUTH="keys,oidc",
            CADRE_ADMIN_KEY=ADMIN_KEY,
            CADRE_OIDC_ISSUER=provider.issuer,
            CADRE_OIDC_CLIENT_ID=CLIENT_ID,
            CADRE_OIDC_CLIENT_SECRET=CLIENT_SECRET,
            CADRE_OIDC_GRANTS=json.dumps({"people": {"roles": ["operator"]}}),
            CADRE_OIDC_NAME="Test ID",
        )
        yield Gateway(service)


def test_somebody_signs_in_by_their_provider_and_goes_on_where_they_were(
    page: Page, gateway: Gateway, errors: Errors, pictures: Pictures
) -> None:
    page.goto(f"{gateway.service.url}/#/automation")
    page.reload()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("API key")).to_be_visible()
    expect(page.locator("main")).to_be_hidden()
    expect(page.locator("#nav")).to_be_hidden()
    pictures.take(page, "sign-in")
    dialog.get_by_role("button", name="Sign in with Test ID").click()
    page.get_by_role("link", name="ann").click()
    expect(page.locator("header.top .who")).to_have_text("ann")
    expect(page).to_have_url(f"{gateway.service.url}/#/automation")
    expect(page.locator("main")).to_be_visible()
    expect(dialog).to_have_count(0)
    # No script reads what lets somebody in.
    assert page.evaluate("document.cookie") == ""
    page.reload()
    expect(page.locator("header.top .who")).to_have_text("ann")
    page.get_by_role("button", name="Sign out").click()
    expect(dialog.get_by_role("button", name="Sign in with Test ID")).to_be_visible()
    errors.forgive("401")


def test_who_is_granted_nothing_reads_why(page: Page, errors: Errors) -> None:
    page.get_by_role("button", name="Sign in with Test ID").click()
    page.get_by_role("link", name="mallory").click()
    expect(page.get_by_text("granted nothing here")).to_be_visible()
    page.get_by_role("link", name="Back to the console").click()
    expect(page.get_by_role("button", name="Sign in with Test ID")).to_be_visible()
    errors.forgive("401", "403")


def test_a_page_of_another_site_signs_nobody_in_as_somebody_else(
    browser: Browser, page: Page, gateway: Gateway, errors: Errors
) -> None:
    """The attacker's own sign-in, stopped before its last step, as a link for somebody else."""
    attacker = browser.new_context().new_page()
    attacker.route(re.compile("/auth/callback"), lambda route: route.abort())
    attacker.goto(f"{gateway.service.url}/auth/login")
    with attacker.expect_request(re.compile("/auth/callback")) as link:
        attacker.get_by_role("link", name="ann").click()
    page.goto(link.value.url)
    expect(page.get_by_text("has not begun this sign-in")).to_be_visible()
    assert [one for one in page.context.cookies() if one["name"] == "cadre_session"] == []
    attacker.context.close()
    errors.forgive("401")

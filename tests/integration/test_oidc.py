"""Gateways that let in whom a provider knows: programs by its tokens, people by signing in at its page."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import jwt
import pytest

from cadre.adapters.nats.streams import jetstream
from harness.nats_server import NatsServer
from harness.oidc_provider import CLIENT_ID, OidcProviderServer, SigningKey
from harness.patience import until
from integration.gateway_world import GatewayProcess, World, entered
from integration.oidc_world import ADMIN_KEY, GRANTS, SAME, SENT_BACK, Browser, program, session, settings_of
from integration.role_routes import check_roles


@pytest.fixture(scope="module")
def server() -> Iterator[OidcProviderServer]:
    one = OidcProviderServer()
    yield one
    one.close()


@pytest.fixture
def provider(server: OidcProviderServer) -> OidcProviderServer:
    server.is_down, server.lifetime, server.gives_refresh = False, 300.0, True
    server.people = {role: {"roles": [role]} for role in GRANTS} | {"nobody": {}}
    return server


@pytest.fixture(scope="module")
def gateways(
    nats_server: NatsServer, server: OidcProviderServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[GatewayProcess]]:
    """Two replicas."""
    folder = tmp_path_factory.mktemp("oidc")
    first = GatewayProcess(nats_server.url, folder, **settings_of(server))
    second = GatewayProcess(nats_server.url, folder, settings=first.settings, **settings_of(server))
    yield [first, second]
    first.kill()
    second.kill()


@pytest.fixture
async def world(gateways: list[GatewayProcess], provider: OidcProviderServer) -> AsyncIterator[World]:
    """As the administrator by a token."""
    async with entered(gateways[0]) as one:
        one.http.headers["Authorization"] = f"Bearer {provider.token('admin')}"
        for name in ("boss", "poet"):
            await one.announce(name)
        yield one


@pytest.fixture
async def browser(world: World) -> AsyncIterator[Browser]:
    one = Browser(str(world.http.base_url))
    yield one
    await one.http.aclose()


async def test_each_role_is_held_to_each_route_by_a_token(world: World, provider: OidcProviderServer) -> None:
    async def somebody_with(role: str) -> httpx2.AsyncClient:
        return program(world, provider.token(role))

    await check_roles(somebody_with)


async def test_each_role_is_held_to_each_route_by_a_sign_in(world: World, provider: OidcProviderServer) -> None:
    async def somebody_with(role: str) -> httpx2.AsyncClient:
        browser = Browser(str(world.http.base_url))
        await browser.sign_in(role)
        browser.http.headers.update(SAME)
        return browser.http

    await check_roles(somebody_with)


async def test_a_token_reaches_what_its_claims_grant_and_names_who_did_it(
    world: World, provider: OidcProviderServer
) -> None:
    async with program(world, provider.token("selves")) as selves:
        started = await selves.post("/v1/runs", json={"agent": "boss", "task": "x"})
        assert started.status_code == 202, started.text
        run = started.json()["id"]
        assert (await selves.get(f"/v1/runs/{run}")).json()["user"] == "selves"
        assert (await selves.post(f"/v1/runs/{run}/cancel", json={})).status_code == 202
    async with program(world, provider.token("poets")) as poets:
        refused = await poets.post("/v1/runs", json={"agent": "boss", "task": "x"})
        assert (refused.status_code, refused.json()["code"]) == (403, "out-of-scope")
        assert (await poets.get(f"/v1/runs/{run}")).status_code == 404
    [entry] = (await world.http.get("/v1/audit", params={"target": run})).json()["entries"]
    assert (entry["action"], entry["who"], entry["key"]) == ("run.cancel", "selves", "oidc:selves")


async def test_keys_and_tokens_count_side_by_side(world: World, provider: OidcProviderServer) -> None:
    async with program(world, ADMIN_KEY) as admin:
        assert (await admin.get("/v1/keys")).status_code == 200
    for token in (
        jwt.encode(provider.claims("admin"), provider.key.public_pem()[27:], "HS256"),
        jwt.encode(provider.claims("admin"), SigningKey().private, "RS256", headers={"kid": "other"}),
        provider.token("admin", exp=1),
        provider.token("admin", "another"),
    ):
        async with program(world, token) as wrong:
            answer = await wrong.get("/v1/runs")
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
            assert 'error="invalid_token"' in answer.headers["www-authenticate"]
    async with program(world, provider.token("nobody")) as nobody:
        assert (await nobody.get("/v1/runs")).json()["code"] == "forbidden"


async def test_somebody_signs_in_at_the_provider_and_any_gateway_knows_them(
    world: World, browser: Browser, gateways: list[GatewayProcess]
) -> None:
    ways = (await browser.http.get("/v1/sign-in")).json()
    assert ways == {"keys": True, "provider": "Test ID", "login": "/auth/login"}
    begun = await browser.begin(return_to="/#/runs?agent=%C3%A9")
    flow = begun.headers["set-cookie"].lower()
    assert "httponly" in flow
    assert "samesite=lax" in flow
    asked = parse_qs(urlsplit(begun.headers["location"]).query)
    assert asked["code_challenge_method"] == ["S256"]
    # What is in the address is not what is in the cookie.
    secret = browser.http.cookies["cadre_sign_in"].partition(".")[0]
    assert secret not in begun.headers["location"]

    back = await browser.at_provider("operator", return_to="/#/runs?agent=%C3%A9")
    # One address for both: the other gateway ends what this one has begun.
    there, host = back.replace(gateways[0].url, gateways[1].url), urlsplit(gateways[0].url).netloc
    answer = await browser.http.get(there, headers={**SENT_BACK, "Host": host})
    assert answer.status_code == 303, answer.text
    assert answer.headers["location"] == "/#/runs?agent=%C3%A9"
    [cookie] = [one for one in answer.headers.get_list("set-cookie") if one.startswith("cadre_session=")]
    assert "httponly" in cookie.lower()
    assert "samesite=strict" in cookie.lower()
    assert "cadre_sign_in" not in browser.http.cookies
    for gateway in gateways:
        who = await browser.http.get(f"{gateway.url}/v1/session", headers=SAME)
        assert who.status_code == 200, who.text
        assert (who.json()["name"], who.json()["roles"]) == ("operator", ["operator"])
    listed = (await world.http.get("/v1/keys")).json()["keys"]
    assert browser.http.cookies["cadre_session"].split("_")[1] not in [one["id"] for one in listed]

    start = {"agent": "boss", "task": "x"}
    assert (await browser.http.post("/v1/runs", json=start, headers=SAME)).status_code == 202
    for foreign in ({}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://evil.example"}):
        refused = await browser.http.post("/v1/runs", json=start, headers=foreign)
        assert (refused.status_code, refused.json()["code"]) == (403, "cross-origin"), foreign
    assert (await browser.http.delete("/v1/session", headers=SAME)).status_code == 204
    for gateway in gateways:
        assert (await browser.http.get(f"{gateway.url}/v1/session", headers=SAME)).status_code == 401


async def test_a_sign_in_is_new_whatever_the_browser_had_before(world: World, browser: Browser) -> None:
    """Session fixation."""
    fixed = f"cadre_{'1' * 12}_{'1' * 64}"
    browser.http.cookies.set("cadre_session", fixed, domain="127.0.0.1")
    first = await browser.sign_in("viewer")
    assert fixed not in str(first.headers)
    [token] = re.findall(r"cadre_session=(\w+)", str(first.headers.get_list("set-cookie")))
    browser.http.cookies.clear()
    browser.http.cookies.set("cadre_session", token, domain="127.0.0.1")
    await browser.sign_in("admin")
    async with httpx2.AsyncClient(base_url=world.http.base_url) as attacker:
        had = await attacker.get("/v1/session", headers={"Cookie": f"cadre_session={token}"})
        assert had.status_code == 401, "what it had is over"
        answer = await attacker.get("/v1/session", headers={"Cookie": f"cadre_session={fixed}"})
        assert answer.status_code == 401


async def test_only_the_browser_that_began_a_sign_in_ends_it_and_once(world: World, browser: Browser) -> None:
    """Sign-ins that an attacker has begun (CSRF), and codes that are sent twice."""
    address = await browser.at_provider("viewer")
    other = Browser(str(world.http.base_url))
    stolen = await other.back(address)
    assert stolen.status_code == 401
    assert not stolen.cookies.get("cadre_session")
    await other.begin()
    assert (await other.back(address)).status_code == 401, "nor with the cookie of another sign-in"
    flow = browser.http.cookies["cadre_sign_in"]
    assert (await browser.back(address)).status_code == 303
    assert (await browser.back(address)).status_code == 401, "its cookie is gone"
    browser.http.cookies.clear()
    browser.http.cookies.set("cadre_sign_in", flow, domain="127.0.0.1")
    again = await browser.back(address)
    assert again.status_code == 401
    assert "cadre_session" not in str(again.headers)
    await other.http.aclose()


async def test_an_id_token_of_another_sign_in_is_not_taken(
    world: World, browser: Browser, provider: OidcProviderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = provider.exchange
    for claims in ({"nonce": "of another"}, {"azp": "another", "aud": [CLIENT_ID, "another"]}, {"exp": 1}):
        address = await browser.at_provider("viewer")

        def exchange(form: dict[str, str], claims: dict[str, Any] = claims) -> tuple[int, dict[str, Any]]:
            status, answer = good(form)
            said = jwt.decode(answer["id_token"], options={"verify_signature": False})
            return status, {**answer, "id_token": provider.sign({**said, **claims})}

        monkeypatch.setattr(provider, "exchange", exchange)
        answer = await browser.back(address)
        assert answer.status_code == 401, claims
        assert "cadre_session" not in str(answer.headers)


async def test_what_goes_wrong_is_a_page_without_markup_of_others(
    world: World, browser: Browser, provider: OidcProviderServer
) -> None:
    denied = await browser.at_provider("viewer")
    state = parse_qs(urlsplit(denied).query)["state"][0]
    query = {"state": state, "error": "<script>alert(1)</script>", "session_state": "x"}
    answer = await browser.http.get("/auth/callback", params=query, headers=SENT_BACK)
    assert answer.status_code == 401
    assert answer.headers["content-type"].startswith("text/html")
    assert "script" not in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    unknown = await browser.back(await browser.at_provider("nobody"))
    assert unknown.status_code == 403
    assert "CADRE_OIDC_GRANTS" in unknown.text
    address = await browser.at_provider("viewer")
    provider.is_down = True
    down = await browser.back(address)
    assert down.status_code == 503
    provider.is_down = False


@pytest.mark.parametrize("path", ["https://evil.example", "//evil.example", "/\\evil.example", "/\t/evil"])
async def test_a_sign_in_leads_nowhere_else(world: World, browser: Browser, path: str) -> None:
    answer = await browser.sign_in("viewer", return_to=path)
    assert answer.headers["location"] == "/"


async def test_a_token_signs_a_browser_in_and_a_sign_in_signs_in_no_other(
    world: World, browser: Browser, provider: OidcProviderServer
) -> None:
    bearer = {"Authorization": f"Bearer {provider.token('viewer')}"}
    signed = await browser.http.post("/v1/session", headers={**bearer, **SAME})
    assert signed.json()["name"] == "viewer"
    assert (await session(browser)).json()["roles"] == ["viewer"]
    again = {"Authorization": f"Bearer {browser.http.cookies['cadre_session']}"}
    refused = await browser.http.post("/v1/session", headers={**again, **SAME})
    assert refused.status_code == 401, "what a provider ends would live on in it"
    ended = browser.http.cookies["cadre_session"].split("_")[1]
    assert (await world.http.delete(f"/v1/keys/{ended}")).status_code == 200
    assert (await session(browser)).status_code == 401


async def test_the_provider_is_asked_again_when_its_word_has_expired(
    world: World, browser: Browser, provider: OidcProviderServer, gateways: list[GatewayProcess]
) -> None:
    provider.people["ann"] = {"roles": ["operator"]}
    provider.lifetime = 1
    await browser.sign_in("ann")
    token = browser.http.cookies["cadre_session"]
    stream, subjects = world.topology.automation_stream, world.topology.definitions("key")
    stored = [held.data async for held in jetstream.messages(world.nc, stream, subjects)]
    assert not any(refresh.encode() in data for data in stored for refresh in provider.refresh_tokens())
    provider.people["ann"] = {"roles": ["viewer"]}

    async def demoted() -> bool:
        return bool((await session(browser)).json().get("roles") == ["viewer"])

    await until(demoted)
    assert browser.http.cookies["cadre_session"] == token

    async def all_let_in() -> bool:
        """Both gateways are asked at once, and each refresh token is good for one use."""
        asked = len(provider.asked)
        both = [session(browser, gateway.url) for gateway in gateways for _ in range(4)]
        statuses = {one.status_code for one in await asyncio.gather(*both)}
        assert statuses <= {200, 503}, "nobody has left"
        return statuses == {200} and "/token" in provider.asked[asked:]

    for _ in range(3):
        await until(all_let_in)
    provider.is_down = True

    async def silent() -> bool:
        return (await session(browser)).status_code == 503

    await until(silent)
    provider.is_down = False
    await until(all_let_in)
    del provider.people["ann"]

    async def over() -> bool:
        return (await session(browser)).status_code == 401

    await until(over)


async def test_without_a_refresh_token_a_sign_in_ends_with_the_word_of_the_provider(
    world: World, browser: Browser, provider: OidcProviderServer
) -> None:
    provider.gives_refresh, provider.lifetime = False, 1
    answer = await browser.sign_in("viewer")
    [cookie] = [one for one in answer.headers.get_list("set-cookie") if one.startswith("cadre_session=")]
    assert "Max-Age=1;" in cookie

    async def over() -> bool:
        sent = {"Cookie": cookie.partition(";")[0], **SAME}
        return (await world.http.get("/v1/agents", headers={**sent, "Authorization": ""})).status_code == 401

    await until(over)


async def test_a_key_counts_for_nothing_where_only_the_provider_does(
    nats_server: NatsServer, provider: OidcProviderServer, gateways: list[GatewayProcess], tmp_path: Any
) -> None:
    only = {
        **settings_of(provider),
        "CADRE_AUTH": "oidc",
        "CADRE_OIDC_PUBLIC_URL": "https://cadre.example.com",
    }
    strict = GatewayProcess(nats_server.url, tmp_path, settings=gateways[0].settings, **only)
    try:
        async with entered(gateways[0]) as world, program(world, ADMIN_KEY) as admin:
            made = await admin.post("/v1/keys", json={"name": "robot", "roles": ["admin"]})
        async with httpx2.AsyncClient(base_url=strict.url) as http:
            for key in (ADMIN_KEY, made.json()["token"]):
                assert (await http.get("/v1/runs", headers={"Authorization": f"Bearer {key}"})).status_code == 401
            bearer = {"Authorization": f"Bearer {provider.token('admin')}"}
            assert (await http.get("/v1/runs", headers=bearer)).status_code == 200
            refused = await http.post("/v1/keys", json={"name": "x", "roles": ["viewer"]}, headers=bearer)
            assert (refused.status_code, refused.json()["code"]) == (422, "invalid-request")
            assert (await http.get("/v1/sign-in")).json()["keys"] is False
            # Behind a proxy that speaks TLS.
            begun = await http.get("/auth/login", headers=SAME)
            assert begun.headers["set-cookie"].startswith("__Host-cadre_sign_in=")
            assert "secure" in begun.headers["set-cookie"].lower()
            asked = parse_qs(urlsplit(begun.headers["location"]).query)
            assert asked["redirect_uri"] == ["https://cadre.example.com/auth/callback"]
    finally:
        strict.kill()

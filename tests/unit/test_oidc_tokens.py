"""Tokens of a provider: which count, whose they are, and how often the provider is asked for its keys."""

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest

from cadre.adapters.oidc import OidcProvider, OidcSettings
from cadre.errors import ProviderUnavailable, SettingError
from cadre_gateway.access.oidc_sessions import (
    MAX_AGE_SECONDS,
    MISS_SECONDS,
    STALE_SECONDS,
    SigningKeys,
    seal,
    unseal,
)
from cadre_gateway.access.oidc_tokens import ProviderTokens
from cadre_gateway.access.sign_in import own_path
from cadre_gateway.requests.problems import Problem
from harness.oidc_provider import CLIENT_ID, OidcProviderServer, SigningKey

GRANTS = json.dumps(
    {
        "admins": {"roles": ["admin"]},
        "poets": {"roles": ["operator"], "agents": ["poet"]},
        "critics": {"roles": ["approver"], "agents": ["poet"]},
        "staff": {"roles": ["viewer"], "own": True},
    }
)


@pytest.fixture(scope="module")
def server() -> Iterator[OidcProviderServer]:
    one = OidcProviderServer()
    yield one
    one.close()


@pytest.fixture
def provider(server: OidcProviderServer) -> OidcProviderServer:
    server.is_down = False
    server.people = {"ann": {"roles": ["admins"]}}
    server.asked.clear()
    return server


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def tokens(provider: OidcProviderServer, clock: Clock | None = None, **settings: str) -> ProviderTokens:
    chosen = OidcSettings(**{"issuer": provider.issuer, "client_id": CLIENT_ID, "grants": GRANTS, **settings})
    return ProviderTokens(chosen, SigningKeys(OidcProvider(chosen), clock or Clock()))


async def refusal(reader: ProviderTokens, token: str) -> str:
    with pytest.raises(Problem) as caught:
        await reader.principal(token)
    assert caught.value.status == 401
    # A header of one line that ends where it seems to.
    shown = caught.value.headers["WWW-Authenticate"]
    assert shown == f'Bearer realm="cadre", error="invalid_token", error_description="{caught.value.detail}"'
    assert not set('"\\\r\n') & set(caught.value.detail)
    return caught.value.detail


async def test_a_token_of_the_provider_says_who_somebody_is(provider: OidcProviderServer) -> None:
    who = await tokens(provider).principal(provider.token("ann"))
    assert (who.name, who.user, who.key, set(who.roles)) == ("ann", "ann", "oidc:ann", {"admin"})
    assert who.expires_at is not None
    assert who.expires_at > time.time()


def raw(header: dict[str, Any], claims: dict[str, Any], secret: bytes | None) -> str:
    """A token as no library would sign it."""
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in (header, claims)]
    signed = ".".join(parts)
    digest = hmac.digest(secret, signed.encode(), hashlib.sha256) if secret is not None else b""
    return f"{signed}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


async def test_no_confusion_of_keys_and_algorithms_lets_anybody_in(provider: OidcProviderServer) -> None:
    reader, claims, key = tokens(provider), provider.claims("ann"), provider.key
    modulus = key.jwk()["n"].encode()
    for header, secret in (
        ({"alg": "none", "kid": key.kid}, None),
        ({"alg": "None", "kid": key.kid}, None),
        ({"alg": "HS256", "kid": key.kid}, key.public_pem()),
        ({"alg": "HS256", "kid": key.kid}, modulus),
        ({"alg": "HS256"}, b""),
        ({"kid": key.kid}, None),
    ):
        assert "signed" in await refusal(reader, raw(header, claims, secret)), header
    # Another key under its own name, under the provider's, and one that the token brings along.
    stranger = SigningKey()
    forged = jwt.encode(claims, stranger.private, "RS256", headers={"kid": stranger.kid})
    assert "no such key" in await refusal(reader, forged)
    forged = jwt.encode(claims, stranger.private, "RS256", headers={"kid": key.kid})
    assert "signature" in await refusal(reader, forged)
    brought = {"kid": "mine", "jwk": stranger.jwk(), "jku": "http://127.0.0.1:1/keys"}
    assert "no such key" in await refusal(reader, jwt.encode(claims, stranger.private, "RS256", headers=brought))
    # The provider's own key, with an algorithm that is not the key's.
    other = jwt.encode(claims, key.private, "PS256", headers={"kid": key.kid})
    assert "alg" in await refusal(reader, other)
    good = provider.token("ann")
    head, body, signature = good.split(".")
    changed = base64.urlsafe_b64encode(json.dumps({**claims, "sub": "bo"}).encode()).rstrip(b"=").decode()
    assert "signature" in await refusal(reader, f"{head}.{changed}.{signature}")
    assert "signature" in await refusal(reader, f"{head}.{body}.")
    for nonsense in ("..", "a.b.c", f"{head}..{signature}", f"{body}.{head}.{signature}"):
        await refusal(reader, nonsense)
    assert (await reader.principal(good)).name == "ann"


@pytest.mark.parametrize(
    ("claims", "says"),
    [
        ({"exp": 1}, "expired"),
        ({"exp": None}, "lacks"),
        ({"exp": "soon"}, "malformed"),
        ({"nbf": time.time() + 3600}, "not valid yet"),
        ({"iat": time.time() + 3600}, "not valid yet"),
        ({"aud": "another"}, "aud"),
        ({"aud": []}, "aud"),
        ({"iss": "https://evil.example"}, "iss"),
        ({"sub": ""}, "no usable name"),
        ({"sub": "two\nlines"}, "no usable name"),
        ({"sub": 7}, "malformed"),
    ],
)
async def test_what_a_token_says_must_hold(provider: OidcProviderServer, claims: dict[str, Any], says: str) -> None:
    assert says in await refusal(tokens(provider), provider.token("ann", **claims))


@pytest.mark.parametrize("name", ["iss", "aud", "exp", "iat", "sub"])
async def test_a_claim_that_is_missing_is_named(provider: OidcProviderServer, name: str) -> None:
    claims = {key: value for key, value in provider.claims("ann").items() if key != name}
    assert f"lacks the claim {name}" in await refusal(tokens(provider), provider.sign(claims))


async def test_clocks_may_differ_a_little(provider: OidcProviderServer) -> None:
    now = int(time.time())
    token = provider.token("ann", exp=now - 5, iat=now + 5, nbf=now + 5)
    assert (await tokens(provider).principal(token)).name == "ann"


async def test_the_audience_of_programs_may_be_another_than_the_console(provider: OidcProviderServer) -> None:
    reader = tokens(provider, audience="cadre")
    assert (await reader.principal(provider.token("ann", ["account", "cadre"]))).name == "ann"
    assert "aud" in await refusal(reader, provider.token("ann"))


async def test_a_new_key_is_found_and_unknown_ones_start_no_storm(provider: OidcProviderServer) -> None:
    clock = Clock()
    reader = tokens(provider, clock)
    old = provider.token("ann")
    await asyncio.gather(*(reader.principal(old) for _ in range(20)))
    assert provider.asked.count("/keys") == 1
    provider.rotate()
    clock.now += MISS_SECONDS
    assert (await reader.principal(provider.token("ann"))).name == "ann", "found at once"
    assert "no such key" in await refusal(reader, old), "the provider has withdrawn it"
    assert provider.asked.count("/keys") == 2
    stranger = SigningKey()
    forged = [
        jwt.encode(provider.claims("ann"), stranger.private, "RS256", headers={"kid": str(number)})
        for number in range(20)
    ]
    await asyncio.gather(*(refusal(reader, one) for one in forged))
    assert provider.asked.count("/keys") == 2, "none of them has the provider asked so soon"
    clock.now += MISS_SECONDS
    await asyncio.gather(*(refusal(reader, one) for one in forged))
    assert provider.asked.count("/keys") == 3
    clock.now += MAX_AGE_SECONDS
    await reader.principal(provider.token("ann"))
    assert provider.asked.count("/keys") == 4


async def test_a_provider_that_is_down_locks_out_nobody_whose_key_is_known(
    provider: OidcProviderServer,
) -> None:
    clock = Clock()
    reader, token = tokens(provider, clock), provider.token("ann")
    provider.is_down = True
    for _ in range(3):
        with pytest.raises(ProviderUnavailable, match="503"):
            await reader.principal(token)
    assert len(provider.asked) == 1, "it is left alone for a while"
    provider.is_down = False
    clock.now += MISS_SECONDS
    assert (await reader.principal(token)).name == "ann"
    provider.is_down = True
    clock.now += MAX_AGE_SECONDS
    assert (await reader.principal(token)).name == "ann"
    # A provider that takes its time to fail keeps no one waiting but who needs it.
    clock.now += MISS_SECONDS
    with provider.stalled():
        assert (await reader.principal(token)).name == "ann"
    other = jwt.encode(provider.claims("ann"), SigningKey().private, "RS256", headers={"kid": "new"})
    with pytest.raises(ProviderUnavailable):
        await reader.principal(other)
    clock.now += STALE_SECONDS
    with pytest.raises(ProviderUnavailable):
        await reader.principal(token)


async def test_keys_of_another_issuer_are_not_taken(provider: OidcProviderServer) -> None:
    reader = tokens(provider, issuer=f"{provider.issuer}/")
    with pytest.raises(ProviderUnavailable, match="CADRE_OIDC_ISSUER"):
        await reader.principal(provider.token("ann"))


@pytest.mark.parametrize(
    ("roles", "granted", "agents", "own"),
    [
        (["staff", "admins"], {"admin"}, set(), False),
        # The same agents: both roles. Others: the first alone, or `approver` of poems would approve all.
        (["critics", "poets"], {"operator", "approver"}, {"poet"}, False),
        (["staff", "critics"], {"approver"}, {"poet"}, False),
        ("staff", {"viewer"}, set(), True),
    ],
)
async def test_what_a_claim_grants(
    provider: OidcProviderServer, roles: Any, granted: set[str], agents: set[str], own: bool
) -> None:
    who = await tokens(provider).principal(provider.token("ann", roles=roles))
    assert (set(who.roles), set(who.agents), who.own) == (granted, agents, own)


@pytest.mark.parametrize("roles", [[], None, ["nobody"], "admins staff", {"admins": True}, [["admins"]], 7])
async def test_who_is_known_and_granted_nothing_is_told_so(provider: OidcProviderServer, roles: Any) -> None:
    with pytest.raises(Problem) as caught:
        await tokens(provider).principal(provider.token("ann", roles=roles))
    assert (caught.value.status, caught.value.code) == (403, "forbidden")
    assert "CADRE_OIDC_GRANTS" in caught.value.detail


async def test_claims_lie_where_the_settings_say(provider: OidcProviderServer) -> None:
    reader = tokens(provider, grants_claim="realm_access.roles", user_claim="preferred_username")
    named: dict[str, Any] = {"preferred_username": "Ann Lee", "realm_access": {"roles": ["admins"]}}
    who = await reader.principal(provider.token("7f3a", **named))
    assert (who.name, who.key, set(who.roles)) == ("Ann Lee", "oidc:7f3a", {"admin"})
    reader = tokens(provider, grants_claim="https://example.com/roles", grants='{"*": {"roles": ["viewer"]}}')
    who = await reader.principal(provider.token("ann"))
    assert who.roles == {"viewer"}, "`*` is everybody"
    words = tokens(provider, grants_claim="scope")
    assert (await words.principal(provider.token("ann", scope="openid admins"))).roles == {"admin"}


async def test_an_email_that_nobody_has_verified_names_nobody(provider: OidcProviderServer) -> None:
    reader = tokens(provider, user_claim="email")
    token = provider.token("ann", email="boss@example.com", email_verified=False)
    assert "verified" in await refusal(reader, token)
    true = provider.token("ann", email="ann@example.com", email_verified=True)
    assert (await reader.principal(true)).user == "ann@example.com"
    reader = tokens(provider, grants_claim="email", grants='{"boss@example.com": {"roles": ["admin"]}}')
    assert "verified" in await refusal(reader, token)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"issuer": ""}, "CADRE_OIDC_ISSUER"),
        ({"issuer": "http://id.example.com"}, "https://"),
        ({"client_id": ""}, "CADRE_OIDC_AUDIENCE"),
        ({"grants": ""}, "CADRE_OIDC_GRANTS"),
        ({"grants": "{"}, "CADRE_OIDC_GRANTS"),
        ({"grants": '{"a": {"roles": ["king"]}}'}, "king"),
        ({"grants": '{"a": {"roles": []}}'}, "CADRE_OIDC_GRANTS"),
        ({"grants": '{"a": {"roles": ["viewer"], "agents": [""]}}'}, "CADRE_OIDC_GRANTS.*''"),
        ({"grants": '{"a": {"roles": ["viewer"], "teams": ["a.b"]}}'}, "CADRE_OIDC_GRANTS"),
        ({"grants": '{"a": {"roles": ["admin"], "agent": ["x"]}}'}, "agent"),
        ({"grants": "nowhere.yaml"}, "nowhere.yaml"),
        ({"scopes": "email"}, "openid"),
        ({"public_url": "cadre.example.com"}, "CADRE_OIDC_PUBLIC_URL"),
    ],
)
def test_settings_that_would_let_in_nobody_or_anybody_are_refused(settings: dict[str, str], says: str) -> None:
    right = {"issuer": "https://id.example.com", "client_id": CLIENT_ID, "grants": GRANTS}
    with pytest.raises(SettingError, match=says):
        OidcSettings(**{**right, **settings}).read_grants()


def test_grants_may_lie_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "grants.yaml"
    file.write_text("admins: {roles: [admin]}\n'*': {roles: [viewer], own: true}\n")
    settings = OidcSettings(issuer="https://id.example.com", audience="cadre", grants=str(file))
    assert list(settings.read_grants()) == ["admins", "*"]


@pytest.mark.parametrize(
    "path",
    [
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "/\t/evil.example",
        "javascript:alert(1)",
        "evil.example",
        "",
        "/a b",
        "/é",
        "/\r\nSet-Cookie: x=y",
        "/" + "a" * 3000,
    ],
)
def test_a_sign_in_leads_back_to_paths_of_the_gateway_only(path: str) -> None:
    assert own_path(path) == "/"
    assert own_path("/#/run/abc?at=1") == "/#/run/abc?at=1"


def test_a_refresh_token_is_read_by_its_browser_only() -> None:
    sealed = seal("refresh", "token")
    assert "refresh" not in sealed
    assert unseal(sealed, "token") == "refresh"
    with pytest.raises(ValueError, match="another"):
        unseal(sealed, "other")

"""Decide for every request, before any route sees it, whether the host name and the caller are allowed, and how
often a key may ask."""

from __future__ import annotations

import ipaddress
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cadre.errors import RetryableError
from cadre.recent import Recent
from cadre_gateway.access.api_keys import FRESH_SECONDS, ApiKeys
from cadre_gateway.access.audit import AuditTrail
from cadre_gateway.access.principal import ANYBODY, STRANGER, Principal
from cadre_gateway.access.reach import CallerReach
from cadre_gateway.access.rules import RouteRule, RouteRules
from cadre_gateway.requests.parameters import is_own_page
from cadre_gateway.requests.problems import (
    Problem,
    as_problem,
    respond,
    unauthorized,
)

if TYPE_CHECKING:
    from cadre_gateway.access.oidc_tokens import ProviderTokens

COOKIE = "cadre_session"

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers that every answer sends to browsers unless it sets its own: it is data, for this gateway's pages alone."""

_POLICY_VIOLATION = 1008
"""The code by which RFC 6455 has a WebSocket closed that may not be opened."""

_READING = ("GET", "HEAD", "OPTIONS")
_USER = "cadre-user"

_SIGNED_TOKEN = re.compile(r"[\w-]+\.[\w-]+\.[\w-]*", re.ASCII)
"""The form of a provider's tokens: three parts in base64url."""

_PRIVATE = (".svc", ".cluster.local", ".localhost", ".internal", ".home.arpa")
"""Ends of names that cannot exist in the public DNS."""

_HOST = re.compile(r"(?P<host>\[[0-9a-f:.]+\]|[^:\[\]/@]+)(?::\d{1,5})?", re.IGNORECASE)


@dataclass(frozen=True)
class Access:
    """The knowledge of the gate about callers and runs."""

    keys: ApiKeys | None
    """None: callers are not asked who they are."""
    reach: CallerReach
    trail: AuditTrail
    limits: RateLimits
    rules: RouteRules
    hosts: frozenset[str] = frozenset()
    """Names under which it may be reached, in addition to addresses and private names."""
    tokens: ProviderTokens | None = None
    """Reads the tokens of a provider; None where these count for nothing."""
    public_url: str = ""
    """The gateway's URL for browsers; "" where they send it themselves."""

    def is_https(self, request: Request) -> bool:
        """Return whether the browser sends its cookies over TLS."""
        return "https" in (request.url.scheme, urlsplit(self.public_url).scheme)

    async def caller(self, headers: Headers) -> Principal | None:
        """Return who sends these headers, by a bearer token or else by the cookie of a sign-in; None when they do
        not say."""
        if self.keys is None:
            return ANYBODY
        scheme, _, given = headers.get("authorization", "").partition(" ")
        token = given.strip() if scheme.lower() == "bearer" else cookie_of(headers)
        if not token:
            return None
        if self.tokens is not None and scheme.lower() == "bearer" and _SIGNED_TOKEN.fullmatch(token):
            return await self.tokens.principal(token)
        caller = await self.keys.caller(token)
        if caller is None:
            raise unauthorized("this key is not known, was revoked or has expired")
        return caller

    async def identify(self, headers: Headers, source: str) -> Principal | None:
        """Return who sends a request; None when they do not say. Raise a 401 problem for a key that does not count, and
        a 429 one when too many of these came from the address `source`."""
        try:
            return await self.caller(headers)
        except Problem:
            self.limits.check_stranger(source)
            raise

    async def check(self, caller: Principal, rule: RouteRule, variables: dict[str, str]) -> None:
        """Raise a 403 problem for what the caller may not do, a 404 one for runs that they do not reach."""
        if not caller.may(rule.right):
            roles = ", ".join(sorted(caller.roles))
            raise Problem(
                403,
                "forbidden",
                f"{rule.method} {rule.path} needs the right `{rule.right}`, which the roles of this key ({roles}) do"
                " not give: docs/access.md has the table",
            )
        if rule.scope == "none" or rule.scope == "handler":
            return
        if rule.scope == "all":
            if caller.sees_all:
                return
            raise Problem(
                403,
                "out-of-scope",
                f"{rule.method} {rule.path} is about all runs, and this key reaches some only",
            )
        await self.reach.check(caller, rule.scope, variables.get("call") or variables["run"])


class Gate:
    """The outermost part of the application."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await _refuse(scope["type"], receive, send)
            return
        rule, variables = self._access.rules.rule_of(scope["method"], scope["path"])
        state = scope.setdefault("state", {})
        state["caller"] = STRANGER if self._access.keys is not None else ANYBODY
        answer: ASGIApp = self._app
        try:
            await self._admit(scope, rule, variables)
        except (Problem, RetryableError, TimeoutError) as error:
            answer = respond(as_problem(error), scope["path"])
        await answer(scope, receive, _Answering(self._access, scope, send, rule, variables))

    async def _admit(self, scope: Scope, rule: RouteRule, variables: dict[str, str]) -> None:
        """Find out who asks, and whether they may do what they ask for. Raises a problem."""
        headers, access = Headers(scope=scope), self._access
        if access.keys is None or access.hosts:
            check_host(headers, access.hosts)
        if rule.right == "public":
            return
        caller = await access.identify(headers, (scope.get("client") or ("",))[0])
        if caller is None:
            raise unauthorized(
                "say who you are: send `Authorization: Bearer KEY` (CADRE_API_KEY for `cadre` and cadre.Client), or"
                " sign in at the console"
            )
        by_cookie = caller.key and "authorization" not in headers
        if by_cookie and scope["method"] not in _READING and not is_own_page(headers):
            raise Problem(403, "cross-origin", "who is signed in by a cookie writes from the gateway's own pages only")
        scope["state"]["caller"] = caller
        if caller.key:
            # Decisions, messages and edits are by the caller who was let in, even if the request names another.
            MutableHeaders(scope=scope)[_USER] = caller.name.encode().decode("latin-1")
        access.limits.check_rate(caller)
        await access.check(caller, rule, variables)


class _Answering:
    """Sends an answer on when what it says is done stands in the audit trail; ends one that lasts once its caller's key
    does not count any more."""

    def __init__(self, access: Access, scope: Scope, send: Send, rule: RouteRule, variables: dict[str, str]) -> None:
        self._access = access
        self._scope = scope
        self._caller: Principal = scope["state"]["caller"]
        self._headers = Headers(scope=scope)
        self._send = send
        self._rule = rule
        self._variables = variables
        self._checked_at = time.monotonic()
        self._is_over = False

    async def __call__(self, message: Message) -> None:
        if self._is_over:
            return
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        if message["type"] == "http.response.start" and (action := self._action(message["status"])):
            trail, status = self._access.trail, message["status"]
            try:
                await trail.record(self._scope, action, self._variables, self._caller, status)
            except RetryableError as error:
                self._is_over = True
                await respond(as_problem(error), self._scope["path"])(self._scope, _nothing, self._send)
                return
        lasts = self._caller.key and message["type"] == "http.response.body" and message.get("more_body")
        if lasts and time.monotonic() - self._checked_at > FRESH_SECONDS and not await self._counts():
            self._is_over = True
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        await self._send(message)

    def _action(self, status: int) -> str:
        """Return the action to record; "" for none."""
        is_left_out = not self._scope["state"].get("audited", True)
        if is_left_out or status == HTTPStatus.TOO_MANY_REQUESTS:
            return ""
        # What pages of other sites try at a gateway that is open to this machine fills no trail.
        if self._caller.key or (self._caller is ANYBODY and status < HTTPStatus.BAD_REQUEST):
            return self._access.rules.action_of(self._rule)
        return ""

    async def _counts(self) -> bool:
        self._checked_at = time.monotonic()
        try:
            return await self._access.caller(self._headers) == self._caller
        except Problem:
            return False
        except (RetryableError, TimeoutError):
            return True  # what is not known is not revoked: asked again with the next piece


async def _refuse(kind: str, receive: Receive, send: Send) -> None:
    """Refuse anything but an HTTP request, because nothing here checks who sends it. A WebSocket is closed before it
    opens, which its server answers with 403."""
    if kind == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": "this gateway speaks HTTP only"})
        return
    raise RuntimeError(f"the gate admits HTTP alone, and this is {kind!r}")


async def _nothing() -> Message:
    return {"type": "http.disconnect"}


def cookie_of(headers: Headers, name: str = COOKIE) -> str:
    """Return the value of a cookie, of the sign-in's unless another is named; "" without one."""
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return found.value if found is not None else ""


def host_name(headers: Headers) -> str:
    """Return the name that a request is sent to, in lower case and without its port; "" for none."""
    found = _HOST.fullmatch(headers.get("host", ""))
    return found["host"].lower().rstrip(".") if found is not None else ""


def check_host(headers: Headers, allowed: frozenset[str]) -> None:
    """Raise a 421 problem for a `Host` that is neither an address, nor a private name, nor one of `allowed`.

    Where callers are not asked who they are, an attacker could point a name at the gateway's address (DNS rebinding),
    and the pages of that name could do anything here.
    """
    written, name = headers.get("host", ""), host_name(headers)
    if not (name in allowed or is_private_name(name)):
        raise Problem(
            421,
            "unknown-host",
            f"this gateway is not called {written!r}: ask it by its address, or name that host in CADRE_ALLOWED_HOSTS",
        )


def is_private_name(name: str) -> bool:
    """Return whether the host is an address, or a name that cannot exist in the public DNS."""
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        # A name of one word is the machine's own, or one of the network that it is in.
        return bool(name) and ("." not in name or name.endswith(_PRIVATE))
    return True


MAX_BUCKETS = 10_000
"""Maximum number of keys and addresses that are remembered; the least recently seen one starts over."""

MAX_WRONG_KEYS = 30
"""Number of tries with invalid keys that an address has at once; one more every _WRONG_SECONDS."""

_WRONG_SECONDS = 2.0
_DAY_SECONDS = 86_400.0
_BURST_SECONDS = 5.0
"""Seconds of silence for which a key may make all requests at once."""


class RateLimits:
    """The buckets of one gateway."""

    def __init__(self, default_rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`default_rate` is the number of requests per second for a key that sets no rate itself."""
        self._default_rate = default_rate
        self._clock = clock
        self._buckets: Recent[str, tuple[float, float]] = Recent(MAX_BUCKETS)
        """The remaining requests of each, and the time of that count."""

    def check_rate(self, caller: Principal) -> None:
        """Count a request. Raises a 429 problem when there were too many."""
        if caller.key:
            account, rate = caller.account or caller.key, caller.rate or self._default_rate
            self._take(f"rate {account}", rate, max(1.0, rate * _BURST_SECONDS), f"{rate:g} requests a second")

    def check_start(self, caller: Principal) -> None:
        """Count a run that is begun. Raises a 429 problem when there were too many."""
        if caller.key and (runs := caller.runs_per_day) is not None:
            account = caller.account or caller.key
            self._take(f"runs {account}", runs / _DAY_SECONDS, runs, f"{runs} runs a day")

    def check_stranger(self, source: str) -> None:
        """Count a request with an invalid key. Raises a 429 problem after too many of them from that address."""
        self._take(f"wrong {source}", 1 / _WRONG_SECONDS, MAX_WRONG_KEYS, "attempts with unknown keys")

    def _take(self, name: str, rate: float, most: float, what: str) -> None:
        now = self._clock()
        left, at = self._buckets.get(name, (most, now))
        left = min(most, left + (now - at) * rate)
        if left < 1:
            seconds = max(1, int((1 - left) / rate) + 1)
            problem = Problem(429, "rate-limited", f"more than {what}: ask again in {seconds} s")
            problem.headers = {"Retry-After": str(seconds)}
            raise problem
        self._buckets[name] = (left - 1, now)

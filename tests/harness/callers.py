"""Principals of every kind at one deployment: people, programs, keys for some agents, and a gateway without keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx2

from harness.patience import eventually, patience
from harness.stack import Gateway, Stack

ADMIN_KEY = "an-admin-key-of-more-than-32-characters"
DOORS = "openai,a2a,agui,mcp"

Json = dict[str, Any]

KEYS: dict[str, Json] = {
    "ann": {"user": "ann", "own": True},
    "bob": {"user": "bob", "own": True},
    "ann everywhere": {"user": "ann"},
    "bob everywhere": {"user": "bob"},
    "robot": {},
    "drone": {},
    "of two agents": {"agents": ["host", "clerk"]},
    "of the host": {"agents": ["host"]},
    "ann at the clerk": {"user": "ann", "agents": ["clerk"]},
    "of the chief's team": {"teams": ["chief"]},
}
"""Fields of the keys. The principals `admin` and `anybody` (of a gateway that asks for no key) come to them."""


class Caller(NamedTuple):
    """Somebody who asks a gateway."""

    name: str
    http: httpx2.Client
    user: str | None
    own: bool
    agents: frozenset[str] | None

    @property
    def owner(self) -> str:
        """Two callers with the same are the same to a key."""
        return f"person {self.user}" if self.user else self.name

    def reaches(self, user: str | None, root: str) -> bool:
        """Return whether this person's tree that begins with this agent is within the caller's bounds."""
        return (not self.own or self.user == user) and (self.agents is None or root in self.agents)

    def ask(self, method: str, path: str, **options: Any) -> httpx2.Response:
        return self.http.request(method, path, **options)


def add_guarded(stack: Stack) -> None:
    """Adds a gateway that asks for keys to the stack, whose own one asks for none; both have all doors."""
    stack.environment["CADRE_DOORS"] = DOORS
    stack.add("guarded", "cadre_gateway", start=False, CADRE_AUTH="keys", CADRE_ADMIN_KEY=ADMIN_KEY)


@contextmanager
def callers_of(stack: Stack, gateway: Gateway) -> Iterator[dict[str, Caller]]:
    """The principals of KEYS, `admin` and `anybody`, by name."""
    url = stack.services["guarded"].url

    def client(address: str, token: str = "") -> httpx2.Client:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx2.Client(base_url=address, headers=headers, timeout=patience(), verify=False)

    admin = client(url, ADMIN_KEY)
    found = {
        "admin": Caller("admin", admin, None, False, None),
        "anybody": Caller("anybody", client(gateway.service.url), None, False, None),
    }
    for name, fields in KEYS.items():
        body = {"name": name, "roles": ["operator", "approver"], **fields}
        made = admin.post("/v1/keys", json=body)
        assert made.status_code == 201, made.text
        named = [*fields.get("agents", []), *fields.get("teams", [])]
        agents = frozenset(named) if named else None
        http = client(url, made.json()["token"])
        found[name] = Caller(name, http, fields.get("user"), fields.get("own", False), agents)
    yield found
    for one in found.values():
        one.http.close()


def code_of(answer: httpx2.Response) -> str:
    """The code of a refusal, whichever protocol says it."""
    found = answer.json()
    error = found.get("error", found)
    data = error.get("data") or {}
    details = error.get("details") or (data if isinstance(data, list) else [])
    reasons = [one.get("reason") for one in details if isinstance(one, dict) and "reason" in one]
    code = (data.get("code") if isinstance(data, dict) else None) or next(iter(reasons), None)
    return str(code or error.get("code")).replace("_", "-").lower()


def wait_for_call(caller: Caller, run: str) -> str:
    found: list[Json] = []

    def asked() -> bool:
        found[:] = caller.ask("GET", "/v1/approvals", params={"run": run}).json()["approvals"]
        return bool(found)

    eventually(asked, what=f"a call of {run} waits")
    return str(found[0]["call"])


def has_ended(caller: Caller, run: str) -> bool:
    return caller.ask("GET", f"/v1/runs/{run}").json()["ended_at"] is not None

"""Programs and browsers at gateways that let in whom a provider knows."""

import json
from typing import Any

import httpx2

from cadre_gateway.access.principal import RIGHTS
from harness.oidc_provider import CLIENT_ID, CLIENT_SECRET, OidcProviderServer
from harness.patience import patience
from integration.gateway_world import World

ADMIN_KEY = "0123456789abcdef" * 4
GRANTS = {role: {"roles": [role]} for role in RIGHTS} | {
    "poets": {"roles": ["operator"], "agents": ["poet"]},
    "selves": {"roles": ["operator"], "own": True},
}
SAME = {"Sec-Fetch-Site": "same-origin"}
# What a browser says that follows the provider's redirect.
SENT_BACK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}


def settings_of(server: OidcProviderServer) -> dict[str, Any]:
    return {
        "CADRE_AUTH": "keys,oidc",
        "CADRE_ADMIN_KEY": ADMIN_KEY,
        "CADRE_OIDC_ISSUER": server.issuer,
        "CADRE_OIDC_CLIENT_ID": CLIENT_ID,
        "CADRE_OIDC_CLIENT_SECRET": CLIENT_SECRET,
        "CADRE_OIDC_GRANTS": json.dumps(GRANTS),
        "CADRE_OIDC_NAME": "Test ID",
    }


def program(world: World, token: str) -> httpx2.AsyncClient:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx2.AsyncClient(base_url=world.http.base_url, headers=headers, timeout=patience())


class Browser:
    """A browser as far as sign-ins need one: its cookies, and what it says of where it was."""

    def __init__(self, url: str) -> None:
        self.http = httpx2.AsyncClient(base_url=url, timeout=patience())

    async def begin(self, **query: str) -> httpx2.Response:
        return await self.http.get("/auth/login", params=query, headers={"Sec-Fetch-Mode": "navigate", **SAME})

    async def at_provider(self, person: str, **query: str) -> str:
        """Return where the provider sends the browser back to."""
        begun = await self.begin(**query)
        assert begun.status_code == 303, begun.text
        async with httpx2.AsyncClient() as elsewhere:
            chosen = await elsewhere.get(f"{begun.headers['location']}&person={person}")
        found: str = chosen.headers["location"]
        return found

    async def back(self, address: str) -> httpx2.Response:
        return await self.http.get(address, headers=SENT_BACK)

    async def sign_in(self, person: str, **query: str) -> httpx2.Response:
        answer = await self.back(await self.at_provider(person, **query))
        assert answer.status_code == 303, answer.text
        return answer


async def session(browser: Browser, url: str = "") -> httpx2.Response:
    return await browser.http.get(f"{url}/v1/session", headers=SAME)

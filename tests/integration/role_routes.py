"""Each role tries each route of the API, however it says who it is."""

import contextlib
import re
from collections.abc import Awaitable, Callable

import httpx2

from cadre_gateway.access.principal import RIGHTS
from cadre_gateway.doors.open_doors import rules_with


async def check_roles(somebody_with: Callable[[str], Awaitable[httpx2.AsyncClient]]) -> None:
    """Fails where somebody with a role is let through or refused otherwise than the table of rights says."""
    for role, rights in RIGHTS.items():
        async with contextlib.aclosing(await somebody_with(role)) as somebody:
            for rule in rules_with([]).rules:
                # What signs in and out, what needs a file, and what leads browsers elsewhere.
                if rule.path in ("/v1/session", "/v1/runs/import") or not rule.path.startswith("/v1"):
                    continue
                where = re.sub(r"\{\w+\}", "0", rule.path)
                content = b"?" if rule.method != "GET" else None
                answer = await somebody.request(rule.method, where, content=content)
                refused = answer.status_code == 403 and answer.json()["code"] == "forbidden"
                assert refused is (rule.right not in {*rights, "public"}), (role, rule, answer.text)
                assert answer.status_code not in (401, 500), (role, rule, answer.text)

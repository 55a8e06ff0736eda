"""The right that each route needs, and what of a request is held to the caller's scope; doors declare their own."""

import re
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from cadre.automation.automation_file import DEFINITIONS, SCHEDULE, AnySpec, Definition
from cadre.protocol.access import Right

Scope = Literal["none", "run", "tree", "call", "all", "handler"]
"""The things that a caller who does not see everything must reach: nothing in particular; the run that the path names;
its whole tree; the call's tree; everything, so that they are refused; or what the route's own code checks or leaves
out."""


class RouteRule(NamedTuple):
    """The requirements of one route on its caller."""

    method: str
    path: str
    """As the API's description writes it."""
    right: Right
    scope: Scope


def rules_of_path(path: str, scope: Scope, **rights: Right) -> list[RouteRule]:
    """Return the rules of one path, each of the rights being that of its method."""
    return [RouteRule(method.upper(), path, right, scope) for method, right in rights.items()]


def _rules_of(one: Definition[AnySpec]) -> list[RouteRule]:
    """Return the rules of the routes that each kind of definition has."""
    writing: Right = "act" if one is SCHEDULE else "administer"
    named = rules_of_path(f"{one.path}/{{name}}", "all", get="read", put=writing, delete=writing)
    return [*rules_of_path(one.path, "all", get="read"), *named]


RULES: list[RouteRule] = [
    *rules_of_path("/", "none", get="public"),
    *rules_of_path("/console/{path}", "none", get="public"),
    *rules_of_path("/openapi.json", "none", get="public"),
    *rules_of_path("/v1/sign-in", "none", get="public"),
    *rules_of_path("/auth/login", "none", get="public"),
    *rules_of_path("/auth/callback", "none", get="public"),
    *rules_of_path("/v1/session", "none", get="public", post="public", delete="public"),
    *rules_of_path("/v1/keys", "all", get="administer", post="administer"),
    *rules_of_path("/v1/keys/{id}", "all", delete="administer"),
    *rules_of_path("/v1/audit", "all", get="administer"),
    *rules_of_path("/v1/runs", "handler", get="read", post="act"),
    *rules_of_path("/v1/runs/import", "all", post="administer"),
    *rules_of_path("/v1/runs/{run}", "run", get="read"),
    *rules_of_path("/v1/runs/{run}", "all", delete="administer"),
    *rules_of_path("/v1/runs/{run}/events", "run", get="read"),
    *rules_of_path("/v1/runs/{run}/entries/{n}", "run", get="read"),
    *rules_of_path("/v1/runs/{run}/trace", "run", get="read"),
    *rules_of_path("/v1/runs/{run}/steps/{step}/request", "run", get="read"),
    *rules_of_path("/v1/runs/{run}/replay", "run", get="read"),
    *rules_of_path("/v1/runs/{run}/verify", "run", get="read"),
    *rules_of_path("/v1/runs/{run}/export", "tree", get="read"),
    *rules_of_path("/v1/runs/{run}/cancel", "run", post="act"),
    *rules_of_path("/v1/runs/{run}/signals/{name}", "run", post="act"),
    *rules_of_path("/v1/runs/{run}/messages", "run", post="act"),
    *rules_of_path("/v1/runs/{run}/queue", "run", get="read", patch="act"),
    *rules_of_path("/v1/runs/{run}/plan", "run", get="read", patch="act"),
    *rules_of_path("/v1/runs/{run}/fork", "tree", post="act"),
    *rules_of_path("/v1/runs/{run}/resume", "tree", post="act"),
    *rules_of_path("/v1/runs/{run}/files", "tree", get="read"),
    *rules_of_path("/v1/runs/{run}/files/{path}", "tree", get="read", put="act", delete="act"),
    # Who knows the 256 bits of a blob's name has read them in a run that they reach.
    *rules_of_path("/v1/blobs/{sha256}", "none", get="read"),
    *rules_of_path("/v1/approvals", "handler", get="read"),
    *rules_of_path("/v1/approvals/{call}", "call", get="read", post="decide"),
    *rules_of_path("/v1/agents", "none", get="read"),
    *rules_of_path("/v1/agents/{agent}", "all", delete="administer"),
    *rules_of_path("/v1/agents/{agent}/rollout", "all", get="read", post="administer"),
    # As /metrics is: what scales the deployment has no key.
    *rules_of_path("/v1/agents/{agent}/lag", "none", get="public"),
    *rules_of_path("/v1/tools", "none", get="read"),
    *rules_of_path("/v1/tools/{tool}", "all", delete="administer"),
    *rules_of_path("/v1/sandboxes", "none", get="read"),
    *rules_of_path("/v1/sandboxes/{pool}", "all", delete="administer"),
    *rules_of_path("/v1/queues", "all", get="read"),
    *rules_of_path("/v1/queues/{kind}/{name}", "all", delete="administer"),
    *rules_of_path("/v1/load", "all", get="read"),
    *rules_of_path("/v1/stats", "all", get="read"),
    *rules_of_path("/v1/index", "all", get="read"),
    *rules_of_path("/v1/index/rebuild", "all", post="administer"),
    *rules_of_path("/v1/dead-letters", "all", get="read"),
    *rules_of_path("/v1/dead-letters/{letter}", "all", get="read", delete="administer"),
    *rules_of_path("/v1/dead-letters/{letter}/retry", "all", post="administer"),
    *rules_of_path("/v1/memory", "handler", get="read", delete="act"),
    *rules_of_path("/v1/memory/search", "handler", post="read"),
    *rules_of_path("/v1/memory/export", "handler", get="read"),
    *rules_of_path("/v1/memory/import", "all", post="administer"),
    *rules_of_path("/v1/memory/{memory_id}", "handler", get="read", delete="act"),
    *(rule for one in DEFINITIONS for rule in _rules_of(one)),
    *rules_of_path("/v1/schedules", "all", post="act"),
    *rules_of_path("/v1/schedules/{name}/pause", "all", post="act"),
    *rules_of_path("/v1/schedules/{name}/resume", "all", post="act"),
    *rules_of_path("/v1/schedules/{name}/run", "all", post="act"),
    *rules_of_path("/v1/triggers/{name}/try", "all", post="act"),
    # A webhook proves by its signature who sent it.
    *rules_of_path("/v1/triggers/{name}", "none", post="public"),
]

_UNKNOWN: Right = "administer"
"""The right that a route needs which the table has forgotten."""


def _pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", path)
    names = [f"(?P<{name}>.*)" if name == "path" else f"(?P<{name}>[^/]+)" for name in parts[1::2]]
    return re.compile("".join(re.escape(text) + name for text, name in zip(parts[::2], [*names, ""], strict=True)))


class RouteRules:
    """The rules of all routes that a gateway has, and which of them are written into the audit trail."""

    def __init__(self, rules: Iterable[RouteRule], actions: Mapping[str, str]) -> None:
        """`actions` are those of the audit trail by the route that they are, such as `POST /v1/keys`."""
        self.rules, self.actions = list(rules), dict(actions)
        # Words before variables, as the router has them.
        self._ordered = sorted(
            ((_pattern(rule.path), rule) for rule in self.rules), key=lambda one: one[1].path.count("{")
        )

    def rule_of(self, method: str, path: str) -> tuple[RouteRule, dict[str, str]]:
        """Return the rule of a request and the variables of its path; a route without one is for administrators."""
        for pattern, rule in self._ordered:
            if rule.method == method and (found := pattern.fullmatch(path)) is not None:
                return rule, found.groupdict()
        return RouteRule(method, path, _UNKNOWN, "all"), {}

    def action_of(self, rule: RouteRule) -> str:
        """Return the action that the audit trail has for the route; "" for a route that is not recorded."""
        return self.actions.get(f"{rule.method} {rule.path}", "")

"""Which right each route needs, and what of a request is held to the caller's scope: the one table of both."""

import re
from typing import Literal, NamedTuple

from cadre.automation.automation_file import DEFINITIONS, SCHEDULE, AnySpec, Definition
from cadre_gateway.access.principal import Right

Scope = Literal["none", "run", "tree", "call", "all", "handler"]
"""What a caller who does not see everything must reach: nothing in particular; the run that the path names; its whole
tree; the call's tree; everything, so that they are refused; or what the route's own code checks or leaves out."""


class RouteRule(NamedTuple):
    """What one route asks of its caller."""

    method: str
    path: str
    """As the API's description writes it."""
    right: Right
    scope: Scope


def _rules(path: str, scope: Scope, **rights: Right) -> list[RouteRule]:
    return [RouteRule(method.upper(), path, right, scope) for method, right in rights.items()]


def _rules_of(one: Definition[AnySpec]) -> list[RouteRule]:
    """Rules of the routes that each kind of definition has."""
    writing: Right = "act" if one is SCHEDULE else "administer"
    named = _rules(f"{one.path}/{{name}}", "all", get="read", put=writing, delete=writing)
    return [*_rules(one.path, "all", get="read"), *named]


RULES: list[RouteRule] = [
    *_rules("/", "none", get="public"),
    *_rules("/console/{path}", "none", get="public"),
    *_rules("/openapi.json", "none", get="public"),
    *_rules("/v1/sign-in", "none", get="public"),
    *_rules("/auth/login", "none", get="public"),
    *_rules("/auth/callback", "none", get="public"),
    *_rules("/v1/session", "none", get="public", post="public", delete="public"),
    *_rules("/v1/keys", "all", get="administer", post="administer"),
    *_rules("/v1/keys/{id}", "all", delete="administer"),
    *_rules("/v1/audit", "all", get="administer"),
    *_rules("/v1/runs", "handler", get="read", post="act"),
    *_rules("/v1/runs/import", "all", post="administer"),
    *_rules("/v1/runs/{run}", "run", get="read"),
    *_rules("/v1/runs/{run}", "all", delete="administer"),
    *_rules("/v1/runs/{run}/events", "run", get="read"),
    *_rules("/v1/runs/{run}/entries/{n}", "run", get="read"),
    *_rules("/v1/runs/{run}/trace", "run", get="read"),
    *_rules("/v1/runs/{run}/steps/{step}/request", "run", get="read"),
    *_rules("/v1/runs/{run}/replay", "run", get="read"),
    *_rules("/v1/runs/{run}/verify", "run", get="read"),
    *_rules("/v1/runs/{run}/export", "tree", get="read"),
    *_rules("/v1/runs/{run}/cancel", "run", post="act"),
    *_rules("/v1/runs/{run}/signals/{name}", "run", post="act"),
    *_rules("/v1/runs/{run}/messages", "run", post="act"),
    *_rules("/v1/runs/{run}/queue", "run", get="read", patch="act"),
    *_rules("/v1/runs/{run}/plan", "run", get="read", patch="act"),
    *_rules("/v1/runs/{run}/fork", "tree", post="act"),
    *_rules("/v1/runs/{run}/continue", "tree", post="act"),
    *_rules("/v1/runs/{run}/files", "tree", get="read"),
    *_rules("/v1/runs/{run}/files/{path}", "tree", get="read", put="act", delete="act"),
    # Who knows the 256 bits of a blob's name has read them in a run that they reach.
    *_rules("/v1/blobs/{sha256}", "none", get="read"),
    *_rules("/v1/approvals", "handler", get="read"),
    *_rules("/v1/approvals/{call}", "call", get="read", post="decide"),
    *_rules("/v1/agents", "none", get="read"),
    *_rules("/v1/agents/{agent}", "all", delete="administer"),
    *_rules("/v1/agents/{agent}/rollout", "all", get="read", post="administer"),
    # As /metrics is: what scales the deployment has no key.
    *_rules("/v1/agents/{agent}/lag", "none", get="public"),
    *_rules("/v1/tools", "none", get="read"),
    *_rules("/v1/tools/{tool}", "all", delete="administer"),
    *_rules("/v1/sandboxes", "none", get="read"),
    *_rules("/v1/sandboxes/{pool}", "all", delete="administer"),
    *_rules("/v1/load", "all", get="read"),
    *_rules("/v1/stats", "all", get="read"),
    *_rules("/v1/index", "all", get="read"),
    *_rules("/v1/index/rebuild", "all", post="administer"),
    *_rules("/v1/dead-letters", "all", get="read"),
    *_rules("/v1/dead-letters/{letter}", "all", get="read", delete="administer"),
    *_rules("/v1/dead-letters/{letter}/retry", "all", post="administer"),
    *_rules("/v1/memory", "handler", get="read", delete="act"),
    *_rules("/v1/memory/search", "handler", post="read"),
    *_rules("/v1/memory/export", "handler", get="read"),
    *_rules("/v1/memory/import", "all", post="administer"),
    *_rules("/v1/memory/{memory_id}", "handler", get="read", delete="act"),
    *(rule for one in DEFINITIONS for rule in _rules_of(one)),
    *_rules("/v1/schedules", "all", post="act"),
    *_rules("/v1/schedules/{name}/pause", "all", post="act"),
    *_rules("/v1/schedules/{name}/resume", "all", post="act"),
    *_rules("/v1/schedules/{name}/run", "all", post="act"),
    # A webhook proves by its signature who sent it.
    *_rules("/v1/triggers/{name}", "none", post="public"),
    # What the body names is held to the caller by the door, which asks for it by id.
    *_rules("/v1/models", "none", get="read"),
    *_rules("/v1/models/{model}", "none", get="read"),
    *_rules("/v1/chat/completions", "handler", post="act"),
    *_rules("/v1/responses", "handler", post="act"),
    *_rules("/v1/responses/{response}", "handler", get="read"),
    *_rules("/v1/responses/{response}", "all", delete="administer"),
    *_rules("/v1/responses/{response}/cancel", "handler", post="act"),
    *_rules("/v1/responses/{response}/input_items", "handler", get="read"),
    *_rules("/a2a/{agent}", "handler", post="act"),
    *_rules("/a2a/{agent}/message:send", "handler", post="act"),
    *_rules("/a2a/{agent}/message:stream", "handler", post="act"),
    *_rules("/a2a/{agent}/tasks", "handler", get="read"),
    *_rules("/a2a/{agent}/tasks/{run}:cancel", "handler", post="act"),
    *_rules("/a2a/{agent}/tasks/{run}:subscribe", "handler", get="read", post="read"),
    *_rules("/a2a/{agent}/tasks/{run}", "handler", get="read"),
    *_rules("/a2a/{agent}/tasks/{run}/pushNotificationConfigs", "handler", get="act", post="act"),
    *_rules("/a2a/{agent}/tasks/{run}/pushNotificationConfigs/{push}", "handler", get="act", delete="act"),
    *_rules("/agui/{agent}", "handler", post="act"),
    *_rules("/a2a/{agent}/.well-known/agent-card.json", "none", get="read"),
    *_rules("/a2a/.well-known/jwks.json", "none", get="public"),
    # What a message asks for is held to the caller by the door, tool by tool.
    *_rules("/mcp", "handler", get="read", post="read", delete="read"),
]

_UNKNOWN: Right = "administer"
"""The right that a route needs which the table has forgotten."""


def _pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", path)
    names = [f"(?P<{name}>.*)" if name == "path" else f"(?P<{name}>[^/]+)" for name in parts[1::2]]
    return re.compile(
        "".join(re.escape(text) + name for text, name in zip(parts[::2], [*names, ""], strict=True))
    )


# Words before variables, as the router has them.
_ORDERED = sorted(((_pattern(rule.path), rule) for rule in RULES), key=lambda one: one[1].path.count("{"))


def rule_of(method: str, path: str) -> tuple[RouteRule, dict[str, str]]:
    """The rule of a request and the variables of its path; what is not in the table is for administrators."""
    for pattern, rule in _ORDERED:
        if rule.method == method and (found := pattern.fullmatch(path)) is not None:
            return rule, found.groupdict()
    return RouteRule(method, path, _UNKNOWN, "all"), {}

"""The table of rights, and what of it is recorded."""

import pytest

from cadre_gateway.access.principal import RIGHTS
from cadre_gateway.doors.open_doors import rules_with

ROUTES = rules_with([])
RULES, ACTIONS = ROUTES.rules, ROUTES.actions

UNRECORDED = {"POST /v1/runs"}
"""The caller that started a run stands in its journal."""


def test_every_change_is_recorded() -> None:
    changes = {
        f"{rule.method} {rule.path}" for rule in RULES if rule.method != "GET" and rule.right not in ("public", "read")
    }
    # Messages of MCP may steer runs; the door leaves out those that do not.
    changes.add("POST /mcp")
    assert changes - UNRECORDED == {action for action in ACTIONS if not action.startswith("GET ")}
    assert set(ACTIONS) <= {f"{rule.method} {rule.path}" for rule in RULES}


@pytest.mark.parametrize(
    ("request_line", "right"),
    [
        ("GET /v1/runs/r", "read"),
        ("POST /v1/runs/import", "administer"),
        ("GET /v1/runs/r/files/a/b/c.txt", "read"),
        ("POST /v1/memory/search", "read"),
        ("GET /v1/memory/export", "read"),
        ("POST /v1/memory/import", "administer"),
        ("GET /console/view/value.js", "public"),
        ("GET /", "public"),
        # What the table does not know is for administrators, however near it comes.
        ("HEAD /v1/runs", "administer"),
        ("GET /v1/runs/", "administer"),
        ("GET /v1/runs/r/events/", "administer"),
        ("GET //", "administer"),
        ("GET /v1/keys\n", "administer"),
        ("DELETE /v1/session/x", "administer"),
    ],
)
def test_a_request_finds_its_rule(request_line: str, right: str) -> None:
    method, _, path = request_line.partition(" ")
    assert ROUTES.rule_of(method, path)[0].right == right


def test_only_administrators_administer_and_who_acts_does_not_decide() -> None:
    assert [role for role, rights in RIGHTS.items() if "administer" in rights] == ["admin"]
    assert [role for role, rights in RIGHTS.items() if {"act", "decide"} <= rights] == ["admin"]

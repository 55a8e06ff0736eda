"""A person's part in a test: which calls wait, what is said of them, and what the tools then did."""

from pathlib import Path
from typing import Any

import httpx2

from harness.patience import eventually
from harness.stack import Gateway


def done(books: Path) -> list[str]:
    return books.read_text().splitlines() if books.exists() else []


def waiting(gateway: Gateway, run: str, count: int = 1) -> list[dict[str, Any]]:
    """The calls of the run's tree that wait, once there are so many."""
    found: list[dict[str, Any]] = []

    def asked() -> bool:
        found[:] = gateway.request("GET", "/v1/approvals", params={"run": run}).json()["approvals"]
        return len(found) == count

    eventually(asked, what=f"{count} calls of {run} wait", state=lambda: found)
    return found


def decide(gateway: Gateway, call: str, decision: str, **fields: Any) -> httpx2.Response:
    content = {"decision": decision, "by": "ann", **fields}
    return gateway.request("POST", f"/v1/approvals/{call}", json=content)


def events_of(gateway: Gateway, run: str, name: str) -> list[dict[str, Any]]:
    return [data["event"] for event, data in gateway.events(run) if event == name]

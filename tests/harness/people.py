"""A person's part in a test: which calls wait, what is said of them, and what the tools then did."""

from pathlib import Path
from typing import Any

import httpx2

from harness.command import Commands
from harness.patience import eventually
from harness.stack import Gateway


def done(book: Path) -> list[str]:
    """The lines that tools have left in a file."""
    return book.read_text().splitlines() if book.exists() else []


def waiting(gateway: Gateway, run: str, count: int = 1) -> list[dict[str, Any]]:
    """The calls of the run's tree that wait, once there are so many."""
    found: list[dict[str, Any]] = []

    def asked() -> bool:
        found[:] = gateway.request("GET", "/v1/approvals", params={"run": run}).json()["approvals"]
        return len(found) == count

    eventually(asked, what=f"{count} calls of {run} wait", state=lambda: found)
    return found


def decide(gateway: Gateway, call: str, verdict: str, **fields: Any) -> httpx2.Response:
    content = {"verdict": verdict, "by": "ann", **fields}
    return gateway.request("POST", f"/v1/approvals/{call}", json=content)


def events_of(gateway: Gateway, run: str, name: str) -> list[dict[str, Any]]:
    return [data["event"] for event, data in gateway.events(run) if event == name]


def observed(result: dict[str, Any]) -> str:
    """Return what the model of a finished run read of its calls and code, all steps together."""
    read = []
    for step in result["memory"]:
        for source in (step.get("own"), step, *(step.get("calls") or [])):
            about = source or {}
            read += [about.get("observation") or "", (about.get("error") or {}).get("message", "")]
    return "\n".join(read)


def error_codes(result: dict[str, Any]) -> list[str]:
    """Return the codes of the errors that the steps of a finished run and their calls had, in order."""
    sources = (source for step in result["memory"] for source in (step, *(step.get("calls") or [])))
    return [source["error"]["code"] for source in sources if source.get("error")]


def assert_sound(cadre: Commands, run: str) -> None:
    """Decided again the run is what it was."""
    replay = cadre("replay", run)
    assert (replay.returncode, "no divergence" in replay.stdout) == (0, True), replay.stdout + replay.stderr

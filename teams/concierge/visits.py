"""Two guests visit twice, and one of them asks to be forgotten: what the concierge must know each time, and what not.

Talks to the gateway in CADRE_GATEWAY_URL as any program would. Exits with 0 only if every answer is right.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
import uuid
from typing import Any

GATEWAY = os.environ["CADRE_GATEWAY_URL"]
VISITS = uuid.uuid4().hex[:8]
"""Guests of this demo alone: an earlier one's may still be remembered."""


def ask(method: str, path: str, body: object = None, **headers: str) -> Any:
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(
        GATEWAY + path, data, {"Content-Type": "application/json", **headers}, method=method
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def visit(guest: str, session: str, task: str) -> str:
    """One run for the guest; its answer."""
    run = ask(
        "POST",
        "/v1/runs",
        {"agent": "concierge", "task": task, "user": f"{guest}-{VISITS}", "session": f"{session}-{VISITS}"},
        Prefer="wait=90",
    )
    print(f"{guest:4} {session}: {task}\n       -> {run.get('output') or run}", file=sys.stderr)
    return str(run.get("output"))


def expect(answer: str, *, holds: str = "", lacks: str = "") -> None:
    if holds not in answer or (lacks and lacks in answer):
        sys.exit(f"visits: expected {holds or 'an answer'!r} without {lacks!r} in: {answer}")


def main() -> None:
    dinner = "What can I have for dinner?"
    expect(visit("ada", "monday", "I am Ada and I must not eat nuts."), holds="must not eat nuts")
    expect(visit("bob", "monday", "I am Bob and I must not eat fish."), holds="must not eat fish")

    # Another day, another session: each is known by their own word alone.
    first = visit("ada", "friday", dinner)
    expect(first, holds="without nuts", lacks="fish stew without fish")
    second = visit("bob", "friday", dinner)
    expect(second, holds="without fish", lacks="nuts.")
    if first.split(",")[0] == second.split(",")[0]:
        sys.exit(f"visits: the kitchen served the same dinner twice: {first}")

    whose = f"/v1/memory?user=ada-{VISITS}&scope=user"
    matched = ask("DELETE", whose)
    receipt = ask("DELETE", whose + "&confirm=true")
    print(f"ada asks to be forgotten: {json.dumps(receipt)}", file=sys.stderr)
    if not matched["matched"] or receipt["forgotten"] != matched["matched"] or receipt["left"]:
        sys.exit(f"visits: the receipt is wrong: {receipt}")
    expect(visit("ada", "sunday", dinner), holds="I know of nothing")
    expect(visit("bob", "sunday", dinner), holds="without fish")
    print("Ada was remembered and then forgotten, Bob was remembered, and neither was told of the other.")


if __name__ == "__main__":
    main()

"""Two guests visit twice, and one of them asks to be forgotten: what the concierge must know each time, and what not.

Talks to the gateway of CADRE_GATEWAY_URL through the client of `cadre`. Exits with 0 only if every answer is right.
"""

from __future__ import annotations

import sys
import uuid

from cadre import Client
from cadre.client import Selection

VISITS = uuid.uuid4().hex[:8]
"""Guests of this demo alone: an earlier one's may still be remembered."""


def visit(client: Client, guest: str, session: str, task: str) -> str:
    """One run for the guest; its answer."""
    user, name = f"{guest}-{VISITS}", f"{session}-{VISITS}"
    answer = client.run("concierge", task, user=user, session=name, timeout=90)
    print(f"{guest:4} {session}: {task}\n       -> {answer}", file=sys.stderr)
    return str(answer)


def expect(answer: str, *, holds: str = "", lacks: str = "") -> None:
    if holds not in answer or (lacks and lacks in answer):
        sys.exit(f"visits: expected {holds or 'an answer'!r} without {lacks!r} in: {answer}")


def main() -> None:
    with Client() as client:
        visits(client)
    print("Ada was remembered and then forgotten, Bob was remembered, and neither was told of the other.")


def visits(client: Client) -> None:
    dinner = "What can I have for dinner?"
    expect(visit(client, "ada", "monday", "I am Ada and I must not eat nuts."), holds="must not eat nuts")
    expect(visit(client, "bob", "monday", "I am Bob and I must not eat fish."), holds="must not eat fish")

    # Another day, another session: each is known by their own word alone.
    first = visit(client, "ada", "friday", dinner)
    expect(first, holds="without nuts", lacks="fish stew without fish")
    second = visit(client, "bob", "friday", dinner)
    expect(second, holds="without fish", lacks="nuts.")
    if first.split(",")[0] == second.split(",")[0]:
        sys.exit(f"visits: the kitchen served the same dinner twice: {first}")

    hers = Selection(user=f"ada-{VISITS}", scope="user")
    matched, receipt = client.forget(hers, confirm=False), client.forget(hers)
    print(f"ada asks to be forgotten: {receipt}", file=sys.stderr)
    if not matched.matched or receipt.forgotten != matched.matched or receipt.left:
        sys.exit(f"visits: the receipt is wrong: {receipt}")
    expect(visit(client, "ada", "sunday", dinner), holds="I know of nothing")
    expect(visit(client, "bob", "sunday", dinner), holds="without fish")


if __name__ == "__main__":
    main()

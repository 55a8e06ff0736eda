"""Records journals out of the simulation: `python tests/journals/simulated.py FOLDER`; README.md says when.

A seed is kept when its runs show something that few seeds before did, nor the folders that are there: an event, an
end, an error.
"""

import base64
import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cadre.delivery.codec import HEADERS
from cadre.journal.entry import FAN
from journals import kept
from journals.recorder import write
from simulation.history import History
from simulation.server import Message
from simulation.workers import Parts
from simulation.world import play

SEEDS = 400
OFTEN = 1
"""Seeds that show a thing; further ones need not."""


def record(folder: Path) -> None:
    """Writes one file for each seed that is kept, next to the files that are there."""
    folder.mkdir(parents=True, exist_ok=True)
    known: Counter[str] = Counter()
    for other in kept.HERE.glob("[0-9]*"):
        for name in kept.names(other.name):
            known.update(features(json.loads(line.data) for line in kept.lines(other.name, name)))
    messages: dict[str, dict[str, Any]] = {}
    for seed in (one for one in range(SEEDS) if not (folder / f"simulated_{one}.jsonl.gz").exists()):
        lines = journals_of(seed, messages)
        shown = features(line["entry"] for line in lines)
        if lines and any(known[feature] < OFTEN for feature in shown):
            known.update(shown)
            write(folder / f"simulated_{seed}.jsonl.gz", lines)
    if not (folder / "messages.jsonl.gz").exists():
        write(folder / "messages.jsonl.gz", [messages[kind] for kind in sorted(messages)])


def journals_of(seed: int, messages: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Every journal entry that the simulated server stored; [] for a seed that failed or spilled an entry.

    The first message of each other type is added to `messages`.
    """
    stored: list[Message] = []
    former = History.stored

    def note(self: History, message: Message) -> None:
        if message.subject.split(".", 2)[1] == "run":
            stored.append(message)
        elif "._trial." not in message.subject:
            kind = json.loads(message.data)["type"]
            data = base64.b64encode(message.data).decode()
            line = {"type": kind, "subject": message.subject, "headers": HEADERS, "data": data}
            messages.setdefault(kind, line)
        former(self, message)

    History.stored = note  # type: ignore[method-assign]
    try:
        outcome, _ = play(seed, Parts(fan=FAN))
    finally:
        History.stored = former  # type: ignore[method-assign]
    lines = [{"seq": one.seq, "subject": one.subject, "entry": json.loads(one.data)} for one in stored]
    spilled = any(line["entry"]["type"] == "spilled" for line in lines)
    return [] if outcome.failure is not None or spilled else lines


def features(entries: Iterable[dict[str, Any]]) -> set[str]:
    """Return what the entries show, as far as a decision may depend on it."""
    found: set[str] = set()
    for entry in entries:
        for event in entry["events"]:
            error = (event.get("error") or {}).get("type", "")
            how = event.get("state") or event.get("verdict") or event.get("kind") or error
            found.add(f"{entry.get('kind')} {event['type']} {how}")
    return found


if __name__ == "__main__":
    record(Path(sys.argv[1]))

"""Reads the kept journals: what earlier versions stored, as bytes."""

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cadre.delivery.codec import decode
from cadre.journal.entry import Entry
from cadre.loop.redecide import Journaled

HERE = Path(__file__).parent
VERSIONS = sorted(folder.name for folder in HERE.iterdir() if folder.is_dir() and folder.name[0].isdigit())
MESSAGES = "messages"


class Line(NamedTuple):
    """An entry as its stream holds it (spilled ones as the object store does)."""

    seq: int
    subject: str
    data: bytes


class Stored(NamedTuple):
    type: str
    headers: dict[str, str]
    data: bytes


def names(version: str) -> list[str]:
    found = sorted(file.name.removesuffix(".jsonl.gz") for file in (HERE / version).glob("*.jsonl.gz"))
    return [name for name in found if name != MESSAGES]


def lines(version: str, name: str) -> list[Line]:
    return [
        Line(
            line["seq"],
            line["subject"],
            json.dumps(line.get("blob") or line["entry"], separators=(",", ":"), ensure_ascii=False).encode(),
        )
        for line in _read(version, name)
    ]


def journals(version: str, name: str) -> list[list[Journaled]]:
    """Each run's entries, read by this version."""
    runs: dict[str, list[Journaled]] = {}
    for line in lines(version, name):
        entry: Entry = decode(line.data, Entry)
        runs.setdefault(entry.run, []).append(Journaled(line.seq, entry))
    return list(runs.values())


def messages(version: str) -> list[Stored]:
    return [Stored(line["type"], line["headers"], base64.b64decode(line["data"])) for line in _read(version, MESSAGES)]


def _read(version: str, name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(HERE / version / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)

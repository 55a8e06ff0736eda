"""Cadre's tool `book`: its effect is a line in a file; a test is asked before and behind it."""

import os
import urllib.request
import uuid
from pathlib import Path

from cadre import tool


def _at(label: str) -> None:
    request = urllib.request.Request(f"{os.environ['PROGRAM_CONTROL']}/at/{label}", b"{}")
    with urllib.request.urlopen(request) as answer:
        answer.read()


@tool
def book(n: int) -> str:
    """Book a trip.

    Args:
        n: the number of the trip.
    """
    _at(f"book{n}.called")
    with (Path(os.environ["PROGRAM_FOLDER"]) / "effects").open("a") as out:
        out.write(f"{n}\n")
    _at(f"book{n}.done")
    return f"booked {n} as {uuid.uuid4().hex[:6]}"

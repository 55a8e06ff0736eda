"""What a run of the team comes to: its calls, and its answer given the calls that were interrupted."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from cadre.subjects import call_id

PARTS = (0, 1)


class Part(NamedTuple):
    """One branch of a root run: ids of the lead's run, the worker's run, and their calls."""

    job: str
    lead: str
    lead_post: str
    worker: str
    spend: str
    post: str
    look: str
    grind: str


def part_of(root: str, number: int, index: int) -> Part:
    lead = call_id(root, 1, 1 + index)
    worker = call_id(lead, 1, 1)
    return Part(
        job=f"{number}.{index}",
        lead=lead,
        lead_post=call_id(lead, 1, 0),
        worker=worker,
        spend=call_id(worker, 1, 0),
        post=call_id(worker, 1, 1),
        look=call_id(worker, 1, 2),
        grind=call_id(worker, 2, 0),
    )


def runs_of(root: str, number: int) -> set[str]:
    parts = [part_of(root, number, index) for index in PARTS]
    return {root} | {part.lead for part in parts} | {part.worker for part in parts}


def calls_of(root: str, number: int) -> dict[str, str]:
    """The tool of each call id."""
    calls = {call_id(root, 1, 0): "look"}
    for index in PARTS:
        part = part_of(root, number, index)
        calls |= {
            part.lead_post: "post",
            part.spend: "spend",
            part.post: "post",
            part.look: "look",
            part.grind: "grind",
        }
    return calls


def answer_of(root: str, number: int, interrupted: Collection[str]) -> str:
    """What the boss answers, word for word."""
    parts = [_part_answer(part_of(root, number, index), interrupted) for index in PARTS]
    return " ".join([f"ok:look:{number}", *parts])


def _part_answer(part: Part, interrupted: Collection[str]) -> str:
    def word(tool: str, call: str) -> str:
        return "outcome unknown" if call in interrupted else f"ok:{tool}:{part.job}"

    worker = " ".join(
        [
            word("spend", part.spend),
            word("post", part.post),
            word("look", part.look),
            word("grind", part.grind),
        ]
    )
    return f"[lead {word('post', part.lead_post)} [worker {worker}]]"

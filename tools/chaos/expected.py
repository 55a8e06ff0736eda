"""The expected outcome of a run of the team: its calls, and its answer given the calls that were interrupted."""

from collections.abc import Collection
from typing import NamedTuple

from cadre.protocol.topology import call_id
from chaos.expected_kinds import is_mixed, mixed_answer, mixed_calls, mixed_of, mixed_runs

PARTS = (0, 1)

LOOP = ("spend", "grind", "spend")
"""Calls that the coder makes one by one in its first block."""

AFTER = ("post", "look")
"""Calls that it makes at once in its second."""


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


class Coded(NamedTuple):
    """The code of a root run: id of the coder's run, and the calls of its two blocks in their order."""

    job: str
    run: str
    loop: tuple[tuple[str, str], ...]
    """(tool, call id)"""
    after: tuple[tuple[str, str], ...]


def coded_of(root: str, number: int) -> Coded:
    run = call_id(root, 1, 1 + len(PARTS))
    return Coded(
        job=f"{number}.c",
        run=run,
        loop=tuple((tool, call_id(run, 1, at)) for at, tool in enumerate(LOOP)),
        after=tuple((tool, call_id(run, 2, at)) for at, tool in enumerate(AFTER)),
    )


class Filed(NamedTuple):
    """The workflow of a root run: ids of the clerk's run, of those of its two parts, and of what they may call."""

    job: str
    run: str
    parts: tuple[str, str]
    posts: tuple[str, ...]
    looks: tuple[str, ...]
    spends: tuple[str, ...]
    """One of these: a step is tried again under the next number while no replica offers its tool."""


_TRIES = range(1, 16)


def filed_of(root: str, number: int) -> Filed:
    run = call_id(root, 1, 2 + len(PARTS))
    one, other = call_id(run, 1, 0), call_id(run, 1, 1)
    return Filed(
        job=f"{number}.w",
        run=run,
        parts=(one, other),
        posts=tuple(call_id(one, 1 + at, 0) for at in _TRIES),
        looks=tuple(call_id(other, at, 0) for at in _TRIES),
        spends=tuple(call_id(run, 1 + at, 0) for at in _TRIES),
    )


def part_of(root: str, number: int, index: int) -> Part:
    lead = call_id(root, 1, 1 + index)
    return _part(lead, call_id(lead, 1, 1), f"{number}.{index}")


def _part(lead: str, worker: str, job: str) -> Part:
    return Part(
        job=job,
        lead=lead,
        lead_post=call_id(lead, 1, 0),
        worker=worker,
        spend=call_id(worker, 1, 0),
        post=call_id(worker, 1, 1),
        look=call_id(worker, 1, 2),
        grind=call_id(worker, 2, 0),
    )


def sought_of(root: str, number: int) -> Part:
    """The job that an odd root run's seeker hands to a worker."""
    mixed = mixed_of(root, number)
    return _part(mixed.runs["seeker"], mixed.worker, f"{number}.g")


def runs_of(root: str, number: int) -> set[str]:
    if is_mixed(number):
        return {root, *mixed_runs(mixed_of(root, number))}
    parts = [part_of(root, number, index) for index in PARTS]
    filed = filed_of(root, number)
    return {
        *(root, coded_of(root, number).run, filed.run, *filed.parts),
        *(part.lead for part in parts),
        *(part.worker for part in parts),
    }


def calls_of(root: str, number: int) -> dict[str, str]:
    """The tool of each call id."""
    calls = {call_id(root, 1, 0): "look"}
    if is_mixed(number):
        return calls | mixed_calls(mixed_of(root, number)) | _worker_calls(sought_of(root, number))
    for index in PARTS:
        part = part_of(root, number, index)
        calls |= {part.lead_post: "post"} | _worker_calls(part)
    coded = coded_of(root, number)
    for tool, call in (*coded.loop, *coded.after):
        calls[call] = tool
    filed = filed_of(root, number)
    for tool, tries in (("post", filed.posts), ("look", filed.looks), ("spend", filed.spends)):
        calls |= dict.fromkeys(tries, tool)
    return calls


def _worker_calls(part: Part) -> dict[str, str]:
    return {part.spend: "spend", part.post: "post", part.look: "look", part.grind: "grind"}


def answer_of(root: str, number: int, interrupted: Collection[str]) -> str:
    """Return what the boss answers, word for word."""
    if is_mixed(number):
        worker = _worker_answer(sought_of(root, number), interrupted)
        return f"ok:look:{number} {mixed_answer(mixed_of(root, number), worker, interrupted)}"
    parts = [_part_answer(part_of(root, number, index), interrupted) for index in PARTS]
    coded = coded_answer(coded_of(root, number), interrupted)
    return " ".join([f"ok:look:{number}", *parts, coded, filed_answer(filed_of(root, number), interrupted)])


def filed_answer(filed: Filed, interrupted: Collection[str]) -> str:
    lost = any(call in interrupted for call in filed.spends)
    spent = "outcome unknown" if lost else f"ok:spend:{filed.job}"
    return f"[clerk ok:post:{filed.job} ok:look:{filed.job} {spent}]"


def coded_answer(coded: Coded, interrupted: Collection[str]) -> str:
    spent = [
        "outcome unknown" if call in interrupted else f"ok:{tool}:{coded.job}{at}"
        for at, (tool, call) in enumerate(coded.loop)
    ]
    return f"[coder {' '.join([*spent, *(f'ok:{tool}:{coded.job}' for tool, _ in coded.after)])}]"


def _part_answer(part: Part, interrupted: Collection[str]) -> str:
    return f"[lead {_word(part, 'post', part.lead_post, interrupted)} {_worker_answer(part, interrupted)}]"


def _worker_answer(part: Part, interrupted: Collection[str]) -> str:
    words = [_word(part, tool, call, interrupted) for call, tool in _worker_calls(part).items()]
    return f"[worker {' '.join(words)}]"


def _word(part: Part, tool: str, call: str, interrupted: Collection[str]) -> str:
    return "outcome unknown" if call in interrupted else f"ok:{tool}:{part.job}"

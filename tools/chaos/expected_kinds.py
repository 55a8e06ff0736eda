"""The expected outcome of the agents of an odd root run, whose kinds are goals, task_queue, solution and plan."""

from collections.abc import Collection
from typing import NamedTuple

from cadre.protocol.topology import call_id

CORRECTED = ".corrected"
"""The text that the person who decides on a proposer's solution adds to the job of its first call."""

_KINDS = ("seeker", "queuer", "proposer", "planner")


class Mixed(NamedTuple):
    """An odd root run: ids of its agents' runs in the order of their calls, and of the tools' calls in them."""

    number: int
    runs: dict[str, str]
    parts: tuple[str, ...]
    """Of the planner: of the steps that it carries out itself."""
    worker: str
    spends: dict[str, str]
    posts: dict[str, str]
    looks: dict[str, str]
    balk: str


def is_mixed(number: int) -> bool:
    return number % 2 == 1


def mixed_of(root: str, number: int) -> Mixed:
    runs = {name: call_id(root, 1, place) for place, name in enumerate(_KINDS, 1)}
    seeker, queuer, proposer, planner = runs.values()
    pay, watch, close = call_id(planner, 2, 0), call_id(planner, 2, 1), call_id(planner, 4, 0)
    return Mixed(
        number=number,
        runs=runs,
        parts=(pay, watch, close),
        worker=call_id(seeker, 3, 0),
        # The queuer's other steps are about its queue; a proposer's first call is the question to a person.
        spends=_by_agent(call_id(seeker, 1, 0), call_id(queuer, 2, 0), call_id(proposer, 1, 1), call_id(pay, 1, 0)),
        posts=_by_agent(call_id(seeker, 2, 0), call_id(queuer, 5, 0), call_id(proposer, 2, 0), call_id(watch, 1, 0)),
        looks=_by_agent("", call_id(queuer, 7, 0), call_id(proposer, 1, 2), call_id(watch, 1, 1)),
        balk=call_id(planner, 2, 2),
    )


def _by_agent(*calls: str) -> dict[str, str]:
    return {agent: call for agent, call in zip(_KINDS, calls, strict=True) if call}


def mixed_runs(mixed: Mixed) -> set[str]:
    return {*mixed.runs.values(), *mixed.parts, mixed.worker}


def mixed_calls(mixed: Mixed) -> dict[str, str]:
    """The tool of each call id, but for the worker's."""
    each = (("spend", mixed.spends), ("post", mixed.posts), ("look", mixed.looks))
    return {call: tool for tool, calls in each for call in calls.values()} | {mixed.balk: "balk"}


def mixed_answer(mixed: Mixed, worker: str, interrupted: Collection[str]) -> str:
    """Return what their answers are, one after the other; `worker` is that of the worker of the first."""

    def answer(agent: str, suffix: str, *tools: str, spent: str = "") -> str:
        job = f"{mixed.number}.{suffix}"
        lost = mixed.spends[agent] in interrupted
        words = [
            "outcome unknown" if lost else f"ok:spend:{job}{spent}",
            *(f"ok:{tool}:{job}" for tool in tools),
        ]
        return f"[{agent} {' '.join(words)}"

    return (
        f"{answer('seeker', 'g', 'post')} {worker}] {answer('queuer', 'q', 'post', 'look')}]"
        f" {answer('proposer', 's', 'look', 'post', spent=CORRECTED)}] {answer('planner', 'p', 'post', 'look')}]"
    )

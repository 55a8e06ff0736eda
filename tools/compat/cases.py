"""All cases, and the script by which the model plays them."""

from typing import Any

from compat.call_cases import CALLS
from compat.case import CADRE, SMOLAGENTS, Reply
from compat.code_cases import CODE
from compat.ends import ENDS
from compat.member_cases import MEMBERS
from compat.value_cases import VALUES

CASES = [*CODE, *CALLS, *VALUES, *MEMBERS]
"""Those that end alike."""

PLAYED = [*CASES, *ENDS]


def script() -> dict[str, Any]:
    """The scripted model's script: each system and case has its own replies, given in turn."""
    rules = []
    for model in (SMOLAGENTS, CADRE):
        for case in PLAYED:
            for mark, replies in case.scripts:
                match = {"model": f"^{model}$", "first": _literally(mark)}
                rules.append({"name": f"{model} {mark}", "match": match, "reply": _with_ids(replies)})
    return {"rules": rules}


def _literally(mark: str) -> str:
    return mark.replace("[", r"\[").replace("]", r"\]")


def _with_ids(replies: list[Reply]) -> list[Reply]:
    """In the order of the calls: smolagents sorts results by these ids."""
    return [
        {**reply, "tool_calls": [{**call, "id": f"c{n}{i}"} for i, call in enumerate(reply["tool_calls"])]}
        if "tool_calls" in reply
        else reply
        for n, reply in enumerate(replies)
    ]

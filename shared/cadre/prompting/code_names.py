"""The names that tools and team members have in the Python code of a model."""

from __future__ import annotations

import builtins
import keyword
import re
import unicodedata
from collections.abc import Sequence

from cadre.protocol.cards import AgentCard, ToolCard

Card = ToolCard | AgentCard

RESERVED = frozenset({"final_answer", "gather", "gathered", "CallError", "GatherError", *dir(builtins)})
"""What such names mean already: to the sandbox, and to Python, where a tool called `print` would take away more
than it gives."""


def code_name(name: str) -> str:
    """A name as an identifier: `web-search` is `web_search`, `3d` is `_3d`, `class` is `class_`, `print` is
    `print_`. One that can be used as it is stays."""
    made = re.sub(r"\W", "_", name, flags=re.ASCII)
    if made[:1].isdigit():
        made = f"_{made}"
    return f"{made}_" if keyword.iskeyword(made) or made in RESERVED else made


def named_in_code(cards: Sequence[Card]) -> dict[str, Card]:
    """All cards by their names in code, in the same order. Where two would have one name, the card that really
    has it keeps it, and the other gets a further underscore, whatever their order."""
    taken = {card.name for card in cards if code_name(card.name) == card.name}
    made = {name: name for name in taken}
    for name in sorted({card.name for card in cards} - taken):
        free = code_name(name)
        while free in taken:
            free += "_"
        taken.add(free)
        made[name] = free
    return {made[card.name]: card for card in cards}


def is_parameter_name(name: str) -> bool:
    """Whether an argument can be given as `name=…`. Python would read some letters as others (NFKC)."""
    return (
        name.isidentifier()
        and not keyword.iskeyword(name)
        and name != "__debug__"
        and unicodedata.normalize("NFKC", name) == name
    )

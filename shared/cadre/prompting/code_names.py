"""The names of tools and team members in the Python code that a model writes."""

from __future__ import annotations

import builtins
import keyword
import re
import unicodedata
from collections.abc import Sequence

from cadre.protocol.cards import AgentCard, ToolCard

Card = ToolCard | AgentCard

RESERVED = frozenset({"final_answer", "gather", "gathered", "CallError", "GatherError", *dir(builtins)})
"""Names that the sandbox and Python have given a meaning: a tool must not replace `print`."""


def code_name(name: str) -> str:
    """A name as an identifier: `web-search` becomes `web_search`, `3d` becomes `_3d`, `class` becomes `class_`,
    `print` becomes `print_`. An identifier that is free stays."""
    made = re.sub(r"\W", "_", name, flags=re.ASCII)
    if made[:1].isdigit():
        made = f"_{made}"
    return f"{made}_" if keyword.iskeyword(made) or made in RESERVED else made


def named_in_code(cards: Sequence[Card]) -> dict[str, Card]:
    """All cards by their names in code, in the same order. Of two with the same name in code, the card whose own name
    it is keeps it and the other gets a further underscore, whatever their order."""
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
    """Whether an argument can be given as `name=…`. Python normalises some letters to others (NFKC)."""
    return (
        name.isidentifier()
        and not keyword.iskeyword(name)
        and name != "__debug__"
        and unicodedata.normalize("NFKC", name) == name
    )

"""The tables of docs/python.md: the names of the public modules with the first sentence of their docstrings."""

import inspect
import re
from importlib import import_module

import msgspec

from cadre import events
from generate.schemas import tag_of

_WITHOUT_DOCSTRING = {
    "SCHEMA_VERSION": "The version that messages say they are of.",
    "Record": "Any message to a run: the union of these.",
}


def names(module: str) -> str:
    """Return the table of a module's names."""
    public = import_module(module)
    rows = [f"| `{name}` | {_sentence(name, getattr(public, name))} |" for name in public.__all__]
    return "\n".join(["| name | what it is |", "|---|---|", *rows])


def event_classes() -> str:
    """Return the class of each event of a journal by its name in `cadre.events`."""
    rows = [
        f"| `{name}` | `{tag_of(kind)}` |"
        for name in events.__all__
        if name != "JournalEvent"
        and isinstance(kind := getattr(events, name), type)
        and issubclass(kind, msgspec.Struct)
        and isinstance(kind.__struct_config__.tag, str)
    ]
    return "\n".join(["| name | event |", "|---|---|", *rows])


def _sentence(name: str, value: object) -> str:
    """Return the first sentence of a name's docstring."""
    text = _WITHOUT_DOCSTRING.get(name) or inspect.getdoc(value) or ""
    first = " ".join(text.split("\n\n")[0].split())
    sentence = re.split(r"(?<=[.!?…])\s+(?=[A-Z`])", first)[0]
    return re.sub(r" \(docs/[^)]*\)", "", sentence).replace("|", "\\|")

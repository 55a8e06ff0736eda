"""Reads a docstring for a model: the description, and a text for each parameter."""

import inspect
from collections.abc import Callable
from typing import Any

from griffe import Docstring, DocstringSection, DocstringSectionKind, Function


def read_docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The description and the text of each parameter, from Google, NumPy or Sphinx style."""
    # The line break keeps griffe, which cleans again, from taking a first section's indent away.
    raw = "\n" + (inspect.getdoc(function) or "")
    # griffe wants the function's own tree for annotations; those come from the hints here, so its
    # warnings about their absence are of no use.
    style: Any = "numpy" if "\n---" in raw else "google"
    if ":param" in raw or ":return" in raw:
        style = "sphinx"
    sections = Docstring(raw, parent=Function(function.__name__)).parse(style, warnings=False)
    parts: list[str] = []
    documented: dict[str, str] = {}
    for section in sections:
        if section.kind is DocstringSectionKind.parameters:
            documented |= {p.name: " ".join(p.description.split()) for p in section.value}
        else:
            parts.append(_prose(section))
    return "\n\n".join(part for part in parts if part), documented


def _prose(section: DocstringSection) -> str:
    """A section as text for the model; empty for sections that only programmers need."""
    match section.kind:
        case DocstringSectionKind.text:
            return str(section.value).strip()
        case DocstringSectionKind.admonition:
            return f"{section.title or section.value.kind}: {section.value.contents.strip()}"
        case DocstringSectionKind.returns:
            returned = " ".join(" ".join(item.description.split()) for item in section.value)
            return f"Returns: {returned}" if returned else ""
        case DocstringSectionKind.examples:
            return "Examples:\n" + "\n".join(text for _, text in section.value)
        case _:
            return ""

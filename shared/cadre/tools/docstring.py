"""Reads a docstring for a model: the description, and a text for each parameter."""

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

from griffe import Docstring, DocstringSection, DocstringSectionKind, Function

_ARGUMENTS = r"(?:(?:keyword|other)[ ])?(?:args|arguments|params|parameters)"
_HEAD = re.compile(
    rf"(?P<arguments>{_ARGUMENTS})|returns?|yields?|raises|examples?|notes?|warnings?|attributes",
    re.IGNORECASE,
)
"""Heads of Google's sections, which end with a colon."""

_ENTRY = re.compile(
    r"(?P<indent>\s*)(?:[-*][ ]+)?`?(?P<name>\*{0,2}\w+)`?[ ]*(?:\((?P<type>[^()]*(?:\([^()]*\)[^()]*)*)\))?"
    r"[ ]*(?::|[ ]--?[ ]|[ ]–[ ])[ ]*(?P<text>.*)"
)
"""A parameter in a section of Google's style: `name (type): text`, maybe as an item of a list."""

_FIELD = re.compile(r"^(\s*)[@:](param|arg|type|returns?|rtype|raises?)\b", re.MULTILINE)


def read_docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The description and the text of each parameter, from Google, NumPy or Sphinx style."""
    raw = inspect.getdoc(function) or ""
    # griffe wants the function's own tree for annotations; those come from the hints here, so its
    # warnings about their absence are of no use.
    style: Any = "numpy" if "\n---" in raw else "google"
    if _FIELD.search(raw):
        style, raw = "sphinx", _FIELD.sub(r"\1:\2", raw)
    if style == "google":
        raw = "\n".join(_google_lines(raw.splitlines()))
    # The line break keeps griffe, which cleans again, from taking a first section's indent away.
    sections = Docstring("\n" + raw, parent=Function(function.__name__)).parse(style, warnings=False)
    parts: list[str] = []
    documented: dict[str, str] = {}
    for section in sections:
        if section.kind in (DocstringSectionKind.parameters, DocstringSectionKind.other_parameters):
            documented |= {p.name: " ".join(p.description.split()) for p in section.value}
        else:
            parts.append(_prose(section))
    return "\n\n".join(part for part in parts if part), documented


def _google_lines(lines: list[str]) -> Iterator[str]:
    """Yield the lines as griffe reads them: a blank one above each section, and a section's lines indented."""
    within, shift = False, ""
    for number, line in enumerate(lines):
        head = _HEAD.fullmatch(line.rstrip().removesuffix(":")) if line.rstrip().endswith(":") else None
        following = next((one for one in lines[number + 1 :] if one.strip()), "")
        if head is not None and (following.startswith((" ", "\t")) or _ENTRY.match(following)):
            within = head["arguments"] is not None
            # Some write the parameters below the head without indenting them.
            shift = "" if following.startswith((" ", "\t")) else "    "
            yield ""
            yield "Args:" if within else line
            continue
        if line.strip() and not shift and not line.startswith((" ", "\t")):
            within = False
        if shift and not line.strip():
            within, shift = False, ""
        entry = _ENTRY.fullmatch(line) if within else None
        if entry is not None:
            line = f"{entry['indent']}{entry['name']}: {entry['text']}"
        yield f"{shift}{line}" if line.strip() else line


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

"""The kinds' own sections of an agent: a list in its specification, and keys by the kinds' names in its file."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from cadre.errors import SpecError, UnknownOption
from cadre.options import unknown_option
from cadre.spec.kinds import Section, declared_kinds, once
from cadre.structs import made


@once
def section_types() -> Mapping[str, type[Section]]:
    """Return the type of each section by the key that a file has it under: the kind's name."""
    return {
        name: record
        for name, kind in declared_kinds().items()
        for record in kind.records
        if issubclass(record, Section)
    }


class AsInFiles(msgspec.StructMeta):
    """Let a specification be made in Python with the keys of a file, and mappings as there: `AgentSpec(…, code={…})`.

    Raises SpecError for a key that does not exist or is missing.
    """

    if not TYPE_CHECKING:

        def __call__(cls, **fields: Any) -> Any:
            structs = {**cls.__annotations__, **section_types()}
            known = [name for name in structs if name != "sections"]
            for name, value in fields.items():
                if name not in structs:
                    raise unknown_option("Agent", name, known)
                if isinstance(value, Mapping) and isinstance(structs[name], msgspec.StructMeta):
                    fields[name] = made(structs[name], value)
            defaults = zip(reversed(cls.__struct_fields__), reversed(cls.__struct_defaults__), strict=False)
            optional = {name for name, default in defaults if default is not msgspec.NODEFAULT}
            if lacking := [one for one in cls.__struct_fields__ if one not in {*optional, *fields}]:
                raise UnknownOption(f"Agent needs {' and '.join(lacking)}: it takes {', '.join(known)}")
            return super().__call__(**folded(fields))


def folded(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with all sections in the list `sections`. Raises SpecError for one of another type."""
    known = section_types()
    parts = {name: fields[name] for name in known if fields.get(name, UNSET) is not UNSET}
    for name, part in parts.items():
        if not isinstance(part, known[name]):
            raise SpecError(f"write {name} as a {known[name].__name__}", agent=str(fields.get("name")))
    rest = {key: value for key, value in fields.items() if key not in known}
    return rest | ({"sections": [*fields.get("sections", ()), *parts.values()]} if parts else {})


def unfolded(agent: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields, in JSON types, with each section under its kind's name. Raises SpecError for what is none."""
    parts: dict[str, Any] = {}
    for part in fields.get("sections", ()):
        kind = part.pop("kind", None) if isinstance(part, dict) else None
        if not isinstance(kind, str) or kind not in section_types():
            raise SpecError(f"no kind has the section {kind or part!r}", key="sections", agent=agent)
        if kind in parts:
            raise SpecError(f"{kind} stands there twice", key="sections", agent=agent)
        parts[kind] = part
    return {key: value for key, value in fields.items() if key != "sections"} | parts


def sections(*parts: msgspec.Struct) -> dict[str, Any]:
    """Return the sections as keyword arguments of an AgentSpec. Raises SpecError for what is no kind's section."""
    unknown = [type(part).__name__ for part in parts if type(part) not in section_types().values()]
    if unknown:
        raise SpecError(f"{unknown[0]} is the section of no agent kind")
    return {"sections": [*parts]}

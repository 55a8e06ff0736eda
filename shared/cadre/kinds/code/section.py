"""The section `code` of an agent's file: how an agent of this kind writes and runs code."""

from functools import partial
from typing import Any

from cadre.errors import SpecError
from cadre.protocol.code import BASE_IMPORTS, CodeLimits
from cadre.spec.kinds import Facts, Section
from cadre.spec.names import check_bounds, check_name

KIND = "code"
"""The name of the kind, and of its section."""

BROWSER_VIEW = "look"
"""The browser's tool that shows the page: an agent that observes by it works in a browser."""


class CodeSpec(Section, frozen=True, kw_only=True, tag=KIND, omit_defaults=True):
    """The settings for how an agent of kind `code` writes and runs code."""

    imports: list[str] = []
    """Modules that its code may import in addition to the base ones: `pandas` means all below it too, `*` any."""
    tags: tuple[str, str] = ("<code>", "</code>")
    """The tags before and behind a block of code."""
    structured: bool = False
    """The model answers JSON `{thought, code}` under a schema instead of text with a block."""
    observe: str = ""
    """A tool without needed arguments that is called after each block: its result is part of the observation."""
    limits: CodeLimits = CodeLimits()
    pool: str = "default"
    """The sandboxes that run it (`cadre sandbox --pool`)."""


def code_of(spec: Any) -> CodeSpec:
    """The section of an agent's spec."""
    return spec.section(CodeSpec) or CodeSpec()


def facts(spec: Any, kind: str) -> Facts:
    """Return what follows from a spec whose runs `kind` decides: sandboxes of its pool, with the modules that it
    imports, and a schema where answers are structured, or the last one is held to one.
    """
    code = code_of(spec)
    return Facts(
        kind,
        pools=(code.pool,),
        modules=tuple(name for name in code.imports if name != "*"),
        capabilities=frozenset({"json_schema"} if code.structured or spec.output_schema is not None else ()),
        prompt_file=prompt_file(spec),
        writes_calls=False,
        block=None if code.structured else code.tags,
        terms=partial(prompt_terms, spec),
    )


def prompt_file(spec: Any) -> str:
    """The prompts for answers in JSON, for work in a browser, or for blocks in text."""
    code = code_of(spec)
    if code.structured:
        return "structured_code"
    return "browser_code" if code.observe == BROWSER_VIEW else "code"


def prompt_terms(spec: Any) -> dict[str, Any]:
    """Return the form of its code, for the model: all that it may import, and the tags around a block."""
    code = code_of(spec)
    return {
        "authorized_imports": list(dict.fromkeys([*BASE_IMPORTS, *code.imports])),
        "code_block_opening_tag": code.tags[0],
        "code_block_closing_tag": code.tags[1],
    }


def check(spec: Any) -> None:
    """Raise SpecError for a section that cannot hold, and for names that the agent's code has already."""
    code = code_of(spec)
    bounds = (
        ("code.limits.seconds", code.limits.seconds, 0.1),
        ("code.limits.wall_seconds", code.limits.wall_seconds, 0.1),
        ("code.limits.memory_mb", code.limits.memory_mb, 16),
        ("code.limits.print_chars", code.limits.print_chars, 1),
        ("code.limits.output_chars", code.limits.output_chars, 1),
    )
    check_bounds(spec.name, bounds)
    if len(code.tags) != 2 or not all(tag.strip() for tag in code.tags):
        raise SpecError("must be two texts, as in ['<code>', '</code>']", key="code.tags", agent=spec.name)
    check_name("sandbox pool", code.pool)
    if code.observe and code.observe not in spec.tools:
        raise SpecError(f"spec.tools does not name {code.observe!r}", key="code.observe", agent=spec.name)
    reserved = {"final_answer", "print"} & {*spec.tools, *(str(member) for member in spec.team)}
    if spec.kind == KIND and reserved:
        raise SpecError(f"{min(reserved)} is a function of its code already", agent=spec.name)

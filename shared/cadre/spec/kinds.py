"""Declare which kinds of agents there are, and what of each must be known before anything of it runs.

A kind is declared by a `KindDeclaration`: the closed list of those that come with Cadre stands here, further ones are
found by the entry point group `cadre.kinds` of any installed distribution, or registered by the program that runs
them (`register_kind`). The declarations close the unions of the journal (events, states, messages) and of the agent
file (sections). They are loaded once, at the first use of one of these unions and never by an import: a kind's package
may be imported before `cadre` or after it.
"""

import functools
import threading
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET

from cadre.errors import KindError, SpecError, UnknownOption
from cadre.options import unknown_option
from cadre.recent import Recent
from cadre.structs import made

T = TypeVar("T")

GROUP = "cadre.kinds"
"""Entry points of this group name a `KindDeclaration` each."""

_BUILT_IN = {
    "tool_calling": "cadre.kinds.tool_calling.records:DECLARATION",
    "code": "cadre.kinds.code.records:DECLARATION",
    "goals": "cadre.kinds.goals.records:DECLARATION",
    "task_queue": "cadre.kinds.task_queue.records:DECLARATION",
    "solution": "cadre.kinds.solution.records:DECLARATION",
    "workflow": "cadre.kinds.workflow.records:DECLARATION",
    "plan": "cadre.kinds.plan.records:DECLARATION",
    "remote": "cadre.kinds.remote.records:DECLARATION",
    "program": "cadre.kinds.program.records:DECLARATION",
}

DEFAULT = "tool_calling"
"""The kind of an agent whose file names none."""


class Section(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """Base of what the kinds read of an agent's file under their own names; the tag is the kind's name."""


class Facts(NamedTuple):
    """The facts that follow from an agent's file before a run of it begins."""

    kind: str
    """The name of the kind that decides its runs: another one than its own where its section says so."""
    pools: tuple[str, ...] = ()
    """Sandbox pools that run its code."""
    serves_pools: bool = False
    """True if its pools are its own: `cadre tools FILE` serves them, and no sandbox."""
    modules: tuple[str, ...] = ()
    """The modules that its code may import in addition to the base modules, and that the sandboxes must have."""
    asks_model: bool = True
    """True if its runs ask a model."""
    reads_steps: bool = True
    """True if its model reads the run's steps, so that they must fit the model's context."""
    capabilities: frozenset[str] = frozenset()
    """The capabilities that it needs of its model, of `tools` and `json_schema`."""
    max_steps: int | None = None
    """The number of steps that a run may take, if the section says so; None: as `limits.max_steps` says."""
    prompt_file: str = ""
    """The shipped prompt file that it uses; "": the one of the kind's name."""
    ending: str = "final_answer"
    """The function that its model calls to give its answer."""
    writes_calls: bool = True
    """True if its model writes calls, so that `model.calls` can say how."""
    block: tuple[str, str] | None = None
    """The tags before and behind the code that its model writes; None: it writes none between tags."""
    terms: Callable[[], Mapping[str, Any]] = dict
    """Return the values of the variables of its `PromptFile`. A function: runs ask for other facts far more often."""
    has_variables: bool = False
    """True if its instructions and the texts of its section are templates over the inputs of a task."""
    plans_tools: bool = False
    """True if its runs say by themselves which tools they are going to use (`Draft.plan`), and no model is asked."""
    task: tuple[str, Mapping[str, Any]] | None = None
    """Template of the kind's own by which its model reads the task of a run, with the values of its variables but for
    `task`; None: the model reads the task as it is."""
    tools: str = ""
    """Factory of the tools that only its agents call, as `module:attribute`: a function of the spec, of the
    folder of its file, and of whether they are to be served. `cadre tools FILE` serves them."""


class PromptFile(NamedTuple):
    """The variables that the templates of one shipped prompt file may use besides the common ones."""

    must: str = ""
    """Variables that `system_prompt` must show, separated by spaces."""
    may: str = ""
    """Variables that `system_prompt` may use besides."""
    names_in_code: bool = False
    """True if tools and members are described by the names that Python code calls them by."""
    lists: tuple[str, ...] = ()
    """Variables among them that are lists of texts; the others are texts."""
    templates: Mapping[str, tuple[str, str]] = {}
    """Templates of the kind's own by dotted key, each with the variables that it must show and that it may use."""
    like: str = ""
    """The shipped file whose templates hold where this one has none."""
    shares: str = ""
    """The shipped file that has the texts of `templates` where this one has none."""
    has_short: bool = True
    """True if a short form for small models is shipped with it."""


def _nothing_wrong(_: Any) -> None:
    return None


def _as_usual(spec: Any) -> "Facts":
    return Facts(spec.kind)


class Document(NamedTuple):
    """A file of the kind's own form."""

    name: str
    """The `kind` of the file."""
    as_agent: Callable[[dict[str, Any]], dict[str, Any]]
    """Return the same file as that of an agent. Raises SpecError."""


class KindDeclaration(NamedTuple):
    """One kind of agent, declared: what must be known before anything of it runs. Functions take the agent's spec."""

    name: str
    behavior: Mapping[int, str]
    """The `module:attribute` of its `cadre.engine.kind.Kind`, by version; imported when the first run needs it. A run
    keeps the version that it began with: a new version is added when decisions change."""
    records: tuple[type[msgspec.Struct], ...] = ()
    """Its records, sorted by base: its events (`JournalEvent`), its state of a run (`KindState`), its part of
    an action step (`KindStep`), its section of an agent's file (`Section`, whose fields all have defaults)."""
    purposes: Mapping[str, str] = {}
    """The purposes of its model calls, and how a person who watches reads them."""
    prompts: Mapping[str, PromptFile] = {}
    """The shipped prompt files that its agents may use, by name."""
    check: Callable[[Any], None] = _nothing_wrong
    """Raises SpecError for a spec of this kind that cannot work."""
    facts: Callable[[Any], Facts] = _as_usual
    """Facts that follow from a spec before a run begins."""
    document: Document | None = None
    """A file that describes an agent of this kind in the kind's own keys."""


def version_of(declared: KindDeclaration) -> int:
    """Return the version in which new runs of the kind are decided."""
    return max(declared.behavior)


CLOSING = threading.RLock()
"""Held while kinds are loaded and classes are read. msgspec reads a class at its first use, and a thread that meets a
class which another thread has read by half ends the process (SIGSEGV)."""


def once(make: Callable[[], T]) -> Callable[[], T]:
    """Return a function that makes its value at the first call and returns the same one ever after. One thread makes
    it, and all functions of this decorator share one lock. Not to be called while a module is imported: a thread that
    loads a kind may wait for that module."""
    made: list[T] = []

    @functools.wraps(make)
    def kept() -> T:
        if not made:
            with CLOSING:
                if not made:
                    made.append(make())
        return made[0]

    return kept


_registered: dict[str, KindDeclaration] = {}
_is_closed = _is_loading = False


def register_kind(declaration: KindDeclaration) -> None:
    """Add a kind to this process, as an entry point adds it to every process of an installation.

    Raises KindError: `kind-declared` for a name that is taken, `kinds-closed` once the kinds are loaded.
    """
    name = declaration.name
    with CLOSING:
        if _is_closed or _is_loading:
            raise KindError(
                "kinds-closed",
                f"the kind {name!r} is registered too late: the unions of the journal are closed by the first agent"
                " that is made and the first entry that is read; register it before, or name it in an entry point"
                f" of the group {GROUP}",
            )
        if name in _BUILT_IN or _registered.get(name, declaration) is not declaration:
            raise KindError("kind-declared", f"the kind {name!r} is declared already: choose another name")
        _registered[name] = declaration


@once
def declared_kinds() -> Mapping[str, KindDeclaration]:
    """Return every kind by its name. From the first call on no other kind can be registered.

    Raises KindError for an entry point that does not hold (`kind-invalid`, `kind-declared`) and for a call by a module
    that declares a kind, while it is loaded (`kinds-loading`).
    """
    global _is_closed, _is_loading
    if _is_loading:
        raise KindError(
            "kinds-loading",
            "a module that declares a kind of agent makes an agent, or reads a journal, as it is imported: do that in a"
            " function, or in another module",
        )
    _is_loading = True
    try:
        found = {name: _load(where) for name, where in _BUILT_IN.items()} | _registered
        for entry in entry_points(group=GROUP):
            declared = _load_entry(entry)
            if found.setdefault(entry.name, declared) is not declared:
                raise KindError(
                    "kind-declared",
                    f"the kind {entry.name!r} of {_origin(entry)} is declared already: choose another name",
                )
    finally:
        _is_loading = False
    _is_closed = True
    return found


def declaration_of(kind: str) -> KindDeclaration:
    """The kind's declaration. Raises SpecError for one that is not installed."""
    known = declared_kinds()
    if kind not in known:
        raise SpecError(f"there is no agent kind {kind!r}: use one of {', '.join(known)}")
    return known[kind]


_facts: Recent[tuple[int, str], tuple[Any, Facts]] = Recent(64)
"""The facts of specs by identity and kind, each with its spec: a spec never changes, and each decision asks often."""


def facts_of(spec: Any, kind: str = "") -> Facts:
    """Return what follows from the agent's file, as the kind of that name sees it; "": its own. Raises SpecError for a
    kind that is not installed."""
    key = id(spec), kind or spec.kind
    known = _facts.get(key)
    if known is None or known[0] is not spec:
        known = _facts[key] = spec, declaration_of(key[1]).facts(spec)
    return known[1]


def decided_by(spec: Any) -> str:
    """Return the name of the kind that decides the runs of an agent that begin now; a run that has begun names its
    own. Raises SpecError for a kind that is not installed."""
    return facts_of(spec).kind


def _load(where: str) -> KindDeclaration:
    module, _, attribute = where.partition(":")
    found: KindDeclaration = getattr(import_module(module), attribute)
    return found


def _load_entry(entry: EntryPoint) -> KindDeclaration:
    try:
        found = entry.load()
    except (ImportError, AttributeError) as error:
        raise KindError(
            "kind-invalid", f"the kind {entry.name!r} of {_origin(entry)} cannot be loaded: {error}"
        ) from error
    if not isinstance(found, KindDeclaration) or found.name != entry.name:
        raise KindError(
            "kind-invalid",
            f"the kind {entry.name!r} of {_origin(entry)} is no KindDeclaration of that name: {entry.value}",
        )
    return found


def _origin(entry: EntryPoint) -> str:
    return f"distribution {entry.dist.name}" if entry.dist is not None else "an entry point"


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
    """Return the fields, in JSON types, with each section under its kind's name. Raises SpecError if one is invalid."""
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

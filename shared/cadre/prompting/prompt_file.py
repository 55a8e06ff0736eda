"""Reads a prompt file and renders every template with sample values, so that a wrong one is refused at start."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Set, Sized
from datetime import UTC, datetime
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import StrictUndefined, Template, TemplateError, TemplateSyntaxError, meta, pass_context

from cadre.errors import PromptError
from cadre.prompting.tool_text import (
    to_arguments,
    to_call,
    to_code_call,
    to_code_prompt,
    to_json,
    to_listed_prompt,
    to_short_prompt,
    to_tool_calling_prompt,
)
from cadre.protocol.cards import AgentCard, ToolCard
from cadre.spec.kinds import DEFAULT, PromptFile, declared_kinds, once
from cadre.spec.names import NAME
from cadre.spec.templates.bounded_environment import BoundedEnvironment, CountingContext
from cadre.spec.yaml_file import read_yaml


class Contract(NamedTuple):
    """The variables that a template may use, and those that it must show because the model has no other source."""

    may: frozenset[str]
    must: frozenset[str]


def _contract(must: str, may: str = "") -> Contract:
    return Contract(frozenset(f"{must} {may}".split()), frozenset(must.split()))


@once
def shipped_files() -> Mapping[str, PromptFile]:
    """Return the prompt files by name, as the agent kinds declare them."""
    return {name: file for kind in declared_kinds().values() for name, file in kind.prompts.items()}


_OFFERED = "tools managed_agents"
_TASKS = {
    "planning.initial_plan": _contract(f"task {_OFFERED}"),
    "planning.update_plan_pre_messages": _contract("task"),
    "planning.update_plan_post_messages": _contract(f"{_OFFERED} remaining_steps", may="task"),
    "managed_agent.task": _contract("task", may="name output_schema"),
    "managed_agent.report": _contract("final_answer", may="name"),
    "managed_agent.summary": _contract("messages", may="name"),
    "final_answer.pre_messages": _contract(""),
    "final_answer.post_messages": _contract("task", may="output_schema"),
    "memory.new_task": _contract("task"),
    "memory.plan": _contract("plan"),
    "memory.updated_plan": _contract("plan"),
    "memory.proceed": _contract(""),
    "memory.error": _contract("error"),
    "memory.recalled": _contract("memories"),
    "memory.summary": _contract("summary"),
    "memory.agent_summary": _contract("task past_messages char_limit"),
    "memory.agent_recursive_summary": _contract("task previous_ltm_summary past_messages char_limit"),
}


@once
def contracts() -> Mapping[str, Mapping[str, Contract]]:
    """Return what each template of a file may use, by the file's kind."""
    return {
        name: {
            "system_prompt": _contract(file.must, may=file.may),
            **{key: _contract(must, may) for key, (must, may) in file.templates.items()},
            **_TASKS,
        }
        for name, file in shipped_files().items()
    }


_DEFAULTED = frozenset(key for key in _TASKS if key.startswith("memory.") or key == "managed_agent.summary")
"""The keys that any file other than a shipped one may leave out: those of the shipped file of its kind hold then."""

_SHIPPED = files("cadre") / "prompts"

SHORT = "_short"
"""Behind the name of a shipped file: the one for small models."""


def locate(kind_or_path: str | Path) -> Traversable:
    """The file shipped for an agent kind, or a file by its path. Raises PromptError for an unknown kind."""
    if not (isinstance(kind_or_path, str) and NAME.fullmatch(kind_or_path)):
        return Path(kind_or_path)
    shipped = _SHIPPED / f"{kind_or_path}.yaml"
    if not shipped.is_file():
        raise PromptError(
            f"no prompts are shipped for the agent kind {kind_or_path!r}:"
            f" choose one of {', '.join(shipped_names())}, or give the path of a .yaml file"
        )
    return shipped


def shipped_names() -> list[str]:
    """The names of the shipped files."""
    return sorted(f.name.removesuffix(".yaml") for f in _SHIPPED.iterdir() if f.name.endswith(".yaml"))


def kind_of(kind_or_path: str | Path) -> str:
    """Return a shipped file's own name; of any other, unless a kind is given, that of the default kind."""
    name = str(kind_or_path).removesuffix(SHORT)
    return name if name in contracts() else DEFAULT


def read_texts(source: Traversable, kind: str) -> dict[str, str]:
    """The text of every template by dotted key, defaults included. Raises PromptError naming file and key."""
    keys = contracts()[kind]
    found = _parse(source, keys)
    if unknown := found.keys() - set(keys):
        raise PromptError(f"{source}: unknown key {min(unknown)!r}; the keys are {', '.join(keys)}")
    if optional := _optional(kind) - found.keys():
        shipped = shipped_texts(kind)
        found = {key: shipped[key] for key in keys if key in optional and key in shipped} | found
    for key in keys:
        if key not in found:
            raise PromptError(f"{source}: the key {key} is missing")
        if not isinstance(found[key], str):
            raise PromptError(f"{source}: {key} must be text, not {type(found[key]).__name__}")
    return {key: found[key] for key in keys}


def compile_texts(where: str, texts: Mapping[str, str], kind: str) -> dict[str, Template]:
    """Compile all templates, tried out. Raises PromptError naming where they stand, key and variable."""
    return {
        key: compile_template(f"{where}: {key}", texts[key], contract) for key, contract in contracts()[kind].items()
    }


def _optional(kind: str) -> Set[str]:
    """Return what a file of this kind may leave out."""
    file = shipped_files()[kind]
    return contracts()[kind].keys() - {"system_prompt"} if file.like else _DEFAULTED | file.templates.keys()


def shipped_texts(kind: str) -> dict[str, Any]:
    """The templates of a shipped file, with those that it takes over from another."""
    file = shipped_files()[kind]
    found = shipped_texts(file.like) if file.like else {}
    if file.shares:
        shared = _parse(_SHIPPED / f"{file.shares}.yaml", contracts()[file.shares])
        found |= {key: shared[key] for key in file.templates}
    return found | _parse(_SHIPPED / f"{kind}.yaml", contracts()[kind])


def _parse(source: Traversable, keys: Iterable[str]) -> dict[str, Any]:
    data = read_yaml(source, PromptError)
    if not isinstance(data, dict):
        raise PromptError(f"{source}: must be a mapping with the keys {', '.join(keys)}")
    return dict(_flatten(data, keys))


def _flatten(data: dict[Any, Any], keys: Iterable[str], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys of the templates. A mapping is gone into only where the contracts have one."""
    for name, value in data.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and any(known.startswith(f"{key}.") for known in keys):
            yield from _flatten(value, keys, f"{key}.")
        else:
            yield key, value


# --- compiling a template

_COMPILED_KEPT = 512
"""Compiled templates that a process keeps: files have most of theirs in common, and so have their versions."""

_CARD_UNITS, _CHARACTERS_PER_UNIT = 200, 16

# A prompt file is data and may come from anywhere: it gets no way to Python.
_environment = BoundedEnvironment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def _charged(filter_: Callable[..., Sized]) -> Callable[..., Sized]:
    """Return a filter that writes a card out, charged for what it gives."""

    @pass_context
    def charged(context: CountingContext, card: Any, *how: Any) -> Sized:
        text = filter_(card, *how)
        context.work.charge(_CARD_UNITS + len(text) // _CHARACTERS_PER_UNIT)
        return text

    return charged


for _filter in (
    to_tool_calling_prompt,
    to_short_prompt,
    to_listed_prompt,
    to_arguments,
    to_call,
    to_code_call,
    to_code_prompt,
    to_json,
):
    _environment.filters[_filter.__name__] = _charged(_filter)
_environment.filters["as_date"] = lambda at: datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")
_environment.filters["as_time"] = lambda at: datetime.fromtimestamp(at, UTC).strftime("%a %d %b %Y %H:%M:%S UTC")


class _Samples(NamedTuple):
    """Values that every template is tried out with."""

    marks: dict[str, str]
    """The text by which each variable is found again in what a template renders."""
    full: dict[str, Any]
    """Values that hold the marks."""
    empty: dict[str, Any]


@once
def _samples() -> _Samples:
    every = (contract for known in contracts().values() for contract in known.values())
    marks = {name: f"mark_{name}" for contract in every for name in contract.may}
    marks |= {"remaining_steps": "97531", "char_limit": "86420", "now": "Sun 09 Sep 2001"}
    lists = {name for file in shipped_files().values() for name in file.lists}
    full: dict[str, Any] = {
        **marks,
        "remaining_steps": 97531,
        "char_limit": 86420,
        "now": 1_000_000_000.0,
        "memories": [{"text": marks["memories"], "agent": "researcher", "at": 0.0, "scope": "agent", "run": "r"}],
        "tools": [ToolCard(name=marks["tools"], description="Looks.", input_schema={"type": "object"})],
        "managed_agents": [AgentCard(name=marks["managed_agents"], description="Helps.")],
        **{name: [marks[name]] for name in lists},
        "messages": [marks["messages"]],
    }
    empty: dict[str, Any] = {
        "tools": [],
        "managed_agents": [],
        "custom_instructions": "",
        **{name: [] for name in lists},
        "output_schema": "",
        "messages": [],
    }
    return _Samples(marks, full, empty)


def compile_template(where: str, source: str, contract: Contract) -> Template:
    """One template, tried out. Raises PromptError naming where it stands and the variable."""
    try:
        return _tried(source, contract)
    except PromptError as error:
        raise PromptError(f"{where}{error}") from error


@lru_cache(maxsize=_COMPILED_KEPT)
def _tried(source: str, contract: Contract) -> Template:
    """The template, which knows nothing of where it stands. Raises PromptError saying what that one is."""
    known = ", ".join(sorted(contract.may)) or "none"
    try:
        parsed = _environment.parse(source)
        # Branches that the samples do not enter are checked by their names at least.
        names = meta.find_undeclared_variables(parsed)
        if unknown := names - contract.may - _environment.globals.keys():
            raise PromptError(f" uses the unknown variable {min(unknown)!r}; it may use: {known}")
        template = _environment.from_string(parsed)
        # A plain dict: Jinja's own chain of mappings is copied key by key at every rendering.
        template.globals = dict(template.globals)
        marks, full, empty = _samples()
        samples = {name: full[name] for name in contract.may}
        text = template.render(samples)
        template.render(samples | {name: empty[name] for name in contract.may & empty.keys()})
    except TemplateSyntaxError as error:
        raise PromptError(f", line {error.lineno}: {error.message}") from error
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise PromptError(f" does not render: {error}") from error
    for name in sorted(contract.must):
        if marks[name] not in text:
            raise PromptError(f" must show the variable {name!r}: write {{{{ {name} }}}} into it")
    return template

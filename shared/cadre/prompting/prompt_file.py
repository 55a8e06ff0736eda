"""Reads a prompt file and tries every template on sample values, so that a wrong one is refused at the start."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jinja2 import StrictUndefined, Template, TemplateError, TemplateSyntaxError, meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

from cadre.errors import PromptError
from cadre.prompting.tool_text import to_code_prompt, to_tool_calling_prompt
from cadre.protocol.cards import AgentCard, ToolCard
from cadre.spec.agent import NAME
from cadre.spec.yaml_file import read_yaml


class Contract(NamedTuple):
    """What a template may use, and which of that it must show: whatever reaches the model in no other way."""

    may: frozenset[str]
    must: frozenset[str]


def _contract(must: str, may: str = "") -> Contract:
    return Contract(frozenset(f"{must} {may}".split()), frozenset(must.split()))


Kind = Literal["tool_calling", "code", "structured_code"]
"""Of a prompt file. `structured_code` is for code agents whose model answers JSON."""

_OFFERED = "tools managed_agents"
_IN_CODE = "authorized_imports code_block_opening_tag code_block_closing_tag"
_ANSWERS = "output_schema"
_TASKS = {
    "planning.initial_plan": _contract(f"task {_OFFERED}"),
    "planning.update_plan_pre_messages": _contract("task"),
    "planning.update_plan_post_messages": _contract(f"{_OFFERED} remaining_steps", may="task"),
    "managed_agent.task": _contract("task", may="name"),
    "managed_agent.report": _contract("final_answer", may="name"),
    "managed_agent.summary": _contract("messages", may="name"),
    "final_answer.pre_messages": _contract(""),
    "final_answer.post_messages": _contract("task"),
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

CONTRACTS: dict[Kind, dict[str, Contract]] = {
    # A model that calls tools is offered them, and its team, through its API as well.
    "tool_calling": {
        "system_prompt": _contract("custom_instructions", may=f"{_OFFERED} {_ANSWERS}"),
        **_TASKS,
    },
    "code": {
        "system_prompt": _contract(f"custom_instructions {_OFFERED} {_IN_CODE}", may=_ANSWERS),
        **_TASKS,
    },
    # What stands around the code is the schema's affair there.
    "structured_code": {
        "system_prompt": _contract(
            f"custom_instructions {_OFFERED} authorized_imports", may=f"{_IN_CODE} {_ANSWERS}"
        ),
        **_TASKS,
    },
}
"""What each template of a file may use, by the file's kind."""

KEYS = tuple(CONTRACTS["tool_calling"])

DEFAULTED = frozenset(key for key in KEYS if key.startswith("memory.") or key == "managed_agent.summary")
"""What a file of one's own may leave out: those of the shipped file of its kind hold then."""

_SHIPPED = files("cadre") / "prompts"


def locate(kind_or_path: str | Path) -> Traversable:
    """The file shipped for an agent kind, or a file by its path. Raises PromptError for an unknown kind."""
    if not (isinstance(kind_or_path, str) and NAME.fullmatch(kind_or_path)):
        return Path(kind_or_path)
    shipped = _SHIPPED / f"{kind_or_path}.yaml"
    if not shipped.is_file():
        kinds = sorted(f.name.removesuffix(".yaml") for f in _SHIPPED.iterdir() if f.name.endswith(".yaml"))
        raise PromptError(
            f"no prompts are shipped for the agent kind {kind_or_path!r}:"
            f" choose one of {', '.join(kinds)}, or give the path of a .yaml file"
        )
    return shipped


def kind_of(kind_or_path: str | Path) -> Kind:
    """A shipped file's own kind; of any other, unless somebody says it, `tool_calling`."""
    return next((kind for kind in CONTRACTS if kind == kind_or_path), "tool_calling")


def read_templates(source: Traversable, kind: Kind) -> dict[str, Template]:
    """All templates of a file by dotted key, compiled. Raises PromptError naming file, key and variable."""
    found = _parse(source)
    if unknown := found.keys() - set(KEYS):
        raise PromptError(f"{source}: unknown key {min(unknown)!r}; the keys are {', '.join(KEYS)}")
    if DEFAULTED - found.keys():
        shipped = _parse(_SHIPPED / f"{kind}.yaml")
        found = {key: shipped[key] for key in DEFAULTED} | found
    for key in KEYS:
        if key not in found:
            raise PromptError(f"{source}: the key {key} is missing")
        if not isinstance(found[key], str):
            raise PromptError(f"{source}: {key} must be text, not {type(found[key]).__name__}")
    return {
        key: compile_template(f"{source}: {key}", found[key], contract)
        for key, contract in CONTRACTS[kind].items()
    }


def _parse(source: Traversable) -> dict[str, Any]:
    data = read_yaml(source, PromptError)
    if not isinstance(data, dict):
        raise PromptError(f"{source}: must be a mapping with the keys {', '.join(KEYS)}")
    return dict(_flatten(data))


def _flatten(data: dict[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys of the templates. A mapping is gone into only where the contracts have one."""
    for name, value in data.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and any(known.startswith(f"{key}.") for known in KEYS):
            yield from _flatten(value, f"{key}.")
        else:
            yield key, value


# --- compiling a template

# A prompt file is data and may come from anywhere: it gets no way to Python.
_environment = ImmutableSandboxedEnvironment(
    undefined=StrictUndefined, autoescape=False, trim_blocks=True, lstrip_blocks=True
)
_environment.filters["to_tool_calling_prompt"] = to_tool_calling_prompt
_environment.filters["to_code_prompt"] = to_code_prompt
_environment.filters["as_date"] = lambda at: datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")

# Each sample holds the mark by which it is found again in what a template renders.
_MARKS = {
    name: f"mark_{name}"
    for contracts in CONTRACTS.values()
    for contract in contracts.values()
    for name in contract.may
}
_MARKS["remaining_steps"] = "97531"
_MARKS["char_limit"] = "86420"
_SAMPLES: dict[str, Any] = {
    **_MARKS,
    "remaining_steps": 97531,
    "char_limit": 86420,
    "memories": [
        {"text": _MARKS["memories"], "agent": "researcher", "at": 0.0, "scope": "agent", "run": "r"}
    ],
    "tools": [ToolCard(name=_MARKS["tools"], description="Looks.", input_schema={"type": "object"})],
    "managed_agents": [AgentCard(name=_MARKS["managed_agents"], description="Helps.")],
    "authorized_imports": [_MARKS["authorized_imports"]],
    "messages": [_MARKS["messages"]],
}
_EMPTY: dict[str, Any] = {
    "tools": [],
    "managed_agents": [],
    "custom_instructions": "",
    "authorized_imports": [],
    "output_schema": "",
    "messages": [],
}


def compile_template(where: str, source: str, contract: Contract) -> Template:
    """One template, tried out. Raises PromptError naming where it stands and the variable."""
    known = ", ".join(sorted(contract.may)) or "none"
    try:
        # Branches that the samples do not enter are checked by their names at least.
        names = meta.find_undeclared_variables(_environment.parse(source))
        if unknown := names - contract.may - _environment.globals.keys():
            raise PromptError(f"{where} uses the unknown variable {min(unknown)!r}; it may use: {known}")
        template = _environment.from_string(source)
        # A plain dict: Jinja's own chain of mappings is copied key by key at every rendering.
        template.globals = dict(template.globals)
        samples = {name: _SAMPLES[name] for name in contract.may}
        text = template.render(samples)
        template.render(samples | {name: _EMPTY[name] for name in contract.may & _EMPTY.keys()})
    except TemplateSyntaxError as error:
        raise PromptError(f"{where}, line {error.lineno}: {error.message}") from error
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise PromptError(f"{where} does not render: {error}") from error
    for name in sorted(contract.must):
        if _MARKS[name] not in text:
            raise PromptError(f"{where} must show the variable {name!r}: write {{{{ {name} }}}} into it")
    return template

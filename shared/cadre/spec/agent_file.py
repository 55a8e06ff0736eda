"""Read an agent's YAML file, check it, explain its errors, and list what the agent depends on."""

from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.inspect import Type, type_info

from cadre.errors import SpecError
from cadre.protocol.code import INTERPRETER_TOOL
from cadre.protocol.memory import MEMORY_TOOLS
from cadre.spec.agent import SHORT_PROMPTS, AgentSpec, MemorySpec, Selector, choices_of, fields_without
from cadre.spec.durations import with_seconds
from cadre.spec.kinds import declared_kinds, facts_of, once
from cadre.spec.model import check_urls
from cadre.spec.model_file import check_keys, with_models
from cadre.spec.policy_file import with_policies
from cadre.spec.skill_file import SKILL_FILE, Skill, with_skills
from cadre.spec.team_defaults import defaults_for, with_team_model, with_variables
from cadre.spec.yaml_file import read_yaml
from cadre.structs import known_keys, misfit_of, sections_at


class _AgentMetadata(msgspec.Struct):
    name: str
    labels: dict[str, str] = {}


@once
def agent_body() -> type[msgspec.Struct]:
    """Return the struct of the keys under `spec`: an agent's fields except for those of `metadata`."""
    fields = fields_without(*_AgentMetadata.__struct_fields__)
    return msgspec.defstruct("AgentBody", fields, kw_only=True)


class _Form(NamedTuple):
    """The form of an agent's file."""

    document: Any
    """The struct of the whole document."""
    keys: dict[str, tuple[str, ...]]
    shape: Type
    choices: dict[str, str]
    """The values of each key that takes only certain words, as errors list them."""


@once
def _form() -> _Form:
    fields: list[Any] = [
        ("api_version", Literal["cadre.dev/v1"], msgspec.field(name="apiVersion")),
        ("kind", Literal["Agent"]),
        ("metadata", _AgentMetadata),
        ("spec", agent_body()),
    ]
    document = msgspec.defstruct("_AgentDocument", fields)
    msgspec.json.Decoder(document)  # it reads all classes now, under the lock of `once`
    kinds = ["Agent", *(one.document.name for one in declared_kinds().values() if one.document is not None)]
    choices = {"apiVersion": "cadre.dev/v1", "kind": " or ".join(kinds)}
    choices |= {f"spec.{key}": words for key, words in choices_of().items()}
    return _Form(document, known_keys(document), type_info(document), choices)


def read_agent(path: Path) -> AgentSpec:
    """Read one agent from a YAML file of the form `apiVersion: cadre.dev/v1, kind: Agent, metadata, spec`.

    Raises SpecError with the file, the key and what is expected there.
    """
    return _read(path)[0]


def files_of_agent(path: Path) -> list[Path]:
    """The files that an agent consists of: its own, then its prompts, its models, its policies and its team's, and what
    its skills say of themselves. Raises SpecError."""
    spec, models, skills = _read(path)
    models += [skill.folder / SKILL_FILE for skill in skills]
    prompts = [] if spec.prompts in (None, SHORT_PROMPTS) else [Path(str(spec.prompts))]
    return [path.resolve(), *prompts, *dict.fromkeys(model.resolve() for model in models)]


def skills_of_agent(path: Path) -> list[Skill]:
    """The skills that an agent's file names. Raises SpecError."""
    return _read(path)[2]


def brings_tools(path: Path) -> bool:
    """Return whether the file is one of an agent whose kind brings tools, which `cadre tools` serves.
    Raise SpecError for a file that is no YAML, or is wrong."""
    data = read_yaml(path, SpecError)
    documents = {kind.document.name for kind in declared_kinds().values() if kind.document is not None}
    is_one = isinstance(data, dict) and data.get("kind") in documents
    return is_one and bool(facts_of(read_agent(path)).tools)


def runs_program(path: Path) -> bool:
    """Return True if the file is one of an agent that is a program, which `cadre tools` runs. Raises SpecError."""
    data = read_yaml(path, SpecError)
    spec = data.get("spec") if isinstance(data, dict) and data.get("kind") == "Agent" else None
    names_kind = isinstance(spec, dict) and spec.get("kind") in declared_kinds()
    return names_kind and facts_of(read_agent(path)).serves_pools


def _read(path: Path) -> tuple[AgentSpec, list[Path], list[Skill]]:
    """The agent, the files of its models, policies and team, and its skills."""
    if path.suffix == ".py":
        raise SpecError(
            f"is Python, and an agent is a YAML file: `cadre up {path}` serves the agents and tools that it defines,"
            f" `cadre tools {path}` the tools alone, and a program that calls serve() is run with `python {path}`",
            files=(path,),
        )
    data = read_yaml(path, SpecError)
    if isinstance(data, dict) and data.get("kind") == "Team":
        raise SpecError(
            f"is a team: start all of it with `cadre up {path}`, or name the file of one agent", files=(path,)
        )
    try:
        team = defaults_for(path)
        data = with_variables(data, team.variables) if team.variables else data
        data = written = _as_agent(data)
        data, models = with_models(data, path.parent)
        data, of_team = with_team_model(data, team)
        data, skills = with_skills(data, path.parent)
        data, policies = with_policies(data, path.parent)
        models += [*policies, *of_team, *([team.file] if team.file is not None else [])]
        spec = _spec_of(data, path.parent)
        _check_calls(spec, written["spec"].get("model"))
        return spec, models, skills
    except SpecError as error:
        error.in_file(path)
        raise


def agent_of(data: Any, folder: Path) -> AgentSpec:
    """The agent of a document that stands in no file; its paths are relative to the folder. Raises SpecError."""
    return _spec_of(with_policies(_as_agent(data), folder)[0], folder)


def _spec_of(data: Any, folder: Path) -> AgentSpec:
    _check_keys(data)
    try:
        document = msgspec.convert(with_seconds(data, _form().shape), _form().document)
        check_urls("spec.model", document.spec.model)
        fields = msgspec.structs.asdict(document.spec)
        if fields["prompts"] not in (None, SHORT_PROMPTS):
            fields["prompts"] = str((folder / fields["prompts"]).resolve())
        return AgentSpec(**msgspec.structs.asdict(document.metadata), **fields)
    except msgspec.ValidationError as error:
        raise _explained(error) from error


def _as_agent(data: Any) -> Any:
    """Return the document, which may be of a kind of agent with its own keys, in the keys of every agent."""
    if isinstance(data, dict):
        for kind in declared_kinds().values():
            if kind.document is not None and data.get("kind") == kind.document.name:
                return kind.document.as_agent(data)
    return data


def _check_keys(data: Any) -> None:
    """Raise SpecError for a key that no struct has.

    The structs themselves let one pass: journals hold them, and a newer version's key must not make an
    older version's service unable to read.
    """
    for path, known in _form().keys.items():
        for place, found in sections_at(data, path):
            check_keys(found, place or "the document", known)
    team = data.get("spec", {}).get("team") if isinstance(data, dict) and isinstance(data.get("spec"), dict) else None
    for member in team if isinstance(team, list) else ():
        check_keys(member, "spec.team", Selector.__struct_fields__)
    spec = data.get("spec") if isinstance(data, dict) else None
    approvals = spec.get("approvals") if isinstance(spec, dict) else None
    for name, policy in approvals.items() if isinstance(approvals, dict) else ():
        if not isinstance(name, str) or not isinstance(policy, str):
            raise SpecError(
                f"{name}: {policy}: write never, always or 'when: <expression>' by the name of a"
                " tool (YAML takes yes, no, on and off for true and false)",
                key="spec.approvals",
            )


def _check_calls(spec: AgentSpec, model: Any) -> None:
    """Raise SpecError where the agent's own section `model` says how calls are written, and its kind has none.

    The file of a model that several agents name may say it: those that write no calls do without.
    """
    if facts_of(spec).writes_calls or not isinstance(model, dict):
        return
    for where, section in (
        ("model", model),
        *((f"model.fallbacks[{i}]", one) for i, one in enumerate(model.get("fallbacks") or [])),
    ):
        if isinstance(section, dict) and "calls" in section:
            raise SpecError(
                f"says how a model writes calls, and that of an agent of kind {spec.kind} writes none: leave it out",
                key=f"spec.{where}.calls",
            )


def _explained(error: msgspec.ValidationError) -> SpecError:
    misfit, form = misfit_of(error), _form()
    key, known = misfit.place, f"; known keys: {', '.join(form.keys.get(misfit.place, ()))}"
    if misfit.missing:
        return SpecError(f"key {misfit.missing!r} is missing in {key or 'the document'}{known}")
    if key in form.choices:
        return SpecError(f"{misfit.lower}; write {form.choices[key]}", key=key)
    return SpecError(misfit.problem if key else f"{misfit.problem}{known}", key=key)


class LeanedOn(NamedTuple):
    """The services that an agent leans on."""

    pools: tuple[str, ...]
    """Sandbox pools that run code for it."""
    isolation: bool
    """The agent itself writes code: where no code can be run it can do nothing."""
    memory: bool
    """It keeps something beyond its runs."""


def leaned_on(spec: AgentSpec) -> LeanedOn:
    """The services that an agent of this spec leans on. Raises SpecError for a kind that is not installed."""
    facts = facts_of(spec)
    own = () if facts.serves_pools else facts.pools
    pools = [*_interpreter_pools(spec), *own]
    memory = spec.memory != MemorySpec() or not set(MEMORY_TOOLS).isdisjoint(spec.tools)
    return LeanedOn(tuple(pools), bool(own), memory)


def _interpreter_pools(spec: AgentSpec) -> list[str]:
    """Pools whose interpreter the agent calls as a tool: `python_interpreter`, or `python_interpreter_POOL`."""
    called = [tool.removeprefix(INTERPRETER_TOOL) for tool in spec.tools if tool.startswith(INTERPRETER_TOOL)]
    return ["default" if not rest else rest[1:] for rest in called if not rest or rest[0] == "_"]

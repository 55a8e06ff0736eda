"""Reads and checks a team file: which agents and tools `cadre up` starts together."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from cadre.adapters.mcp.server_file import is_server_file, read_servers
from cadre.automation.automation_file import path_of, read_automations
from cadre.errors import SetupError, SpecError
from cadre.spec.agent import AgentSpec
from cadre.spec.agent_file import brings_tools, leaned_on, read_agent, runs_program, skills_of_agent
from cadre.spec.kinds import facts_of
from cadre.spec.model import ModelSpec
from cadre.spec.names import TEAM_FILE
from cadre.spec.team_defaults import defaults_for
from cadre.spec.yaml_file import read_yaml
from cadre.structs import known_keys, misfit_of


class Demo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A demonstration of the team: a task for one of its agents, or a program that gives several tasks."""

    agent: str = ""
    task: str = ""
    program: str | None = None
    """Command, run in the team's folder with the gateway in CADRE_GATEWAY_URL; exit code 0 means that all went well."""
    check: str | None = None
    """Command, run in the team's folder with the name of a file that holds the answer as its last argument;
    exit code 0 means that the answer is right."""


class _TeamMetadata(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str


class TeamBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys under `spec` of a team file."""

    description: str = ""
    agents: list[str]
    tools: list[str] = []
    automations: list[str] = []
    model: dict[str, Any] | str | None = None
    """The defaults for the agents' section `model`."""
    variables: dict[str, str | int | float | bool] = {}
    """The values of `${NAME}` in the agents' files."""
    script: str | None = None
    demo: Demo | None = None


class _TeamDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    api_version: Literal["cadre.dev/v1"] = msgspec.field(name="apiVersion")
    kind: Literal["Team"]
    metadata: _TeamMetadata
    spec: TeamBody


_KEYS = known_keys(_TeamDocument)

_INDEX_KEY = "QDRANT_API_KEY"


class TeamSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A checked team: all files exist, agent names are unique, and the demo's agent is one of them."""

    name: str
    file: Path
    description: str = ""
    agents: dict[str, Path] = {}
    """Agent file by the name of the agent in it."""
    entry: str = ""
    """The agent to ask: that of the demo, else the first that leads a team and is no member of one."""
    tools: list[str] = []
    """Module names or absolute paths of files, each perhaps with `:NAME` of one tool in it; files of
    MCP servers; folders of skills; and files of agents that bring their tools."""
    pools: list[str] = []
    """Sandbox pools that its agents need."""
    programs: dict[str, Path] = {}
    """Files of the agents that are programs, by the pool that each serves."""
    isolated: list[str] = []
    """Names of the agents that can do nothing where no code can be run."""
    needs_memory: bool = False
    """Some agent keeps something beyond its runs, which needs the memory service."""
    key_variables: list[str] = []
    """Names of the variables that hold keys of its agents' models, and of the memory service's index."""
    automations: list[Path] = []
    """Files of its schedules, triggers, notices and budgets."""
    script: Path | None = None
    """Answers for the scripted model."""
    demo: Demo | None = None

    @property
    def folder(self) -> Path:
        """Return the folder of the team file."""
        return self.file.parent


def read_team(path: Path) -> TeamSpec:
    """Read a team file, or the `team.yaml` of a folder; paths in it are relative to it.

    Its form is `apiVersion: cadre.dev/v1, kind: Team, metadata: {name}, spec: {agents, tools, automations, script,
    demo}`.

    Raises SpecError with the file, the key and what is expected there.
    """
    file = (path / TEAM_FILE if path.is_dir() else path).resolve()
    document = _document(file)
    body, demo = document.spec, document.spec.demo
    agents, specs = _agents(file, body.agents)
    needed = {spec.name: leaned_on(spec) for spec in specs}
    if not agents:
        raise SpecError("name at least one agent file", key="spec.agents", files=(file,))
    if body.model or body.variables:
        _check_reach(file, agents)
    if demo is not None:
        _check_demo(file, demo, agents)
    return TeamSpec(
        name=document.metadata.name,
        file=file,
        description=body.description,
        agents=agents,
        entry=demo.agent if demo is not None and demo.agent else _entry(specs),
        tools=_tools(file, body.tools, agents),
        pools=sorted({pool for one in needed.values() for pool in one.pools}),
        programs={
            pool: agents[spec.name] for spec in specs if (facts := facts_of(spec)).serves_pools for pool in facts.pools
        },
        isolated=[name for name, one in needed.items() if one.isolation],
        needs_memory=(memory := any(one.memory for one in needed.values())),
        key_variables=sorted(
            {key for spec in specs for key in _keys(spec.model)} | ({_INDEX_KEY} if memory else set())
        ),
        automations=_automations(file, body.automations),
        script=None if body.script is None else _existing(file, "spec.script", body.script),
        demo=demo,
    )


def _entry(specs: Sequence[AgentSpec]) -> str:
    members = {member for spec in specs for member in spec.team if isinstance(member, str)}
    leaders = [spec for spec in specs if spec.team]
    first = next((spec for spec in [*leaders, *specs] if spec.name not in members), specs[0])
    return first.name


def named_files(file: Path) -> list[Path]:
    """Return the team file and the agents' files that it names, as far as it can be read: whether they hold is not
    asked."""
    try:
        return [file, *((file.parent / entry).resolve() for entry in _document(file).spec.agents)]
    except SpecError:
        return [file]


def _check_reach(file: Path, agents: dict[str, Path]) -> None:
    """Raise SpecError for an agent that would not find what the team file gives to it."""
    for name, path in agents.items():
        if defaults_for(path).file != file:
            raise SpecError(
                f"spec.model and spec.variables do not reach agent {name} ({path}): they hold for agents in the"
                f" folder of a {TEAM_FILE} and in those below it",
                files=(file,),
            )


def _check_demo(file: Path, demo: Demo, agents: dict[str, Path]) -> None:
    for key, command in (("program", demo.program), ("check", demo.check)):
        if command is not None and not _is_command(command):
            raise SpecError(
                f"{command!r} is no command: write it as for a shell", key=f"spec.demo.{key}", files=(file,)
            )
    if demo.program is not None:
        if demo.agent or demo.task or demo.check:
            raise SpecError("write either a program, or an agent with a task", key="spec.demo", files=(file,))
        return
    if demo.agent not in agents:
        raise SpecError(
            f"{demo.agent!r} is not one of the team's agents: {', '.join(agents)}",
            key="spec.demo.agent",
            files=(file,),
        )
    if not demo.task.strip():
        raise SpecError("is empty", key="spec.demo.task", files=(file,))


def _is_command(text: str) -> bool:
    try:
        return bool(shlex.split(text))
    except ValueError:
        return False


def _document(file: Path) -> _TeamDocument:
    if file.suffix == ".py":
        raise SpecError("is Python: `cadre up` serves what it defines, `cadre check` checks it", files=(file,))
    data = read_yaml(file, SpecError)
    if isinstance(data, dict) and data.get("kind") == "Agent":
        raise SpecError(
            f"is an agent: start it with `cadre agent {file}` while `cadre up` runs, or name it in a team.yaml",
            files=(file,),
        )
    try:
        return msgspec.convert(data, _TeamDocument)
    except msgspec.ValidationError as error:
        raise _explained(error, file) from error


def _explained(error: msgspec.ValidationError, file: Path) -> SpecError:
    misfit = misfit_of(error)
    if not misfit.unknown:
        return SpecError(misfit.problem, key=misfit.place, files=(file,))
    known = ", ".join(_KEYS.get(misfit.place, ()))
    key = f"{misfit.place}.{misfit.unknown}".lstrip(".")
    return SpecError(f"unknown key; known keys: {known}", key=key, files=(file,))


def _agents(file: Path, entries: list[str]) -> tuple[dict[str, Path], list[AgentSpec]]:
    agents: dict[str, Path] = {}
    specs: list[AgentSpec] = []
    for i, entry in enumerate(entries):
        path = _existing(file, f"spec.agents[{i}]", entry)
        spec = read_agent(path)
        if spec.name in agents:
            raise SpecError(
                f"{path} and {agents[spec.name]} both name their agent {spec.name!r}",
                key=f"spec.agents[{i}]",
                files=(file,),
            )
        agents[spec.name] = path
        specs.append(spec)
    return agents, specs


def _automations(file: Path, entries: list[str]) -> list[Path]:
    """Return the checked files. Raises SpecError, also for two of one kind and name."""
    paths = [_existing(file, f"spec.automations[{i}]", entry) for i, entry in enumerate(entries)]
    seen: set[str] = set()
    for path in paths:
        for spec in read_automations(path):
            if path_of(spec) in seen:
                raise SpecError("is there twice", key=spec.name, files=(path,))
            seen.add(path_of(spec))
    return paths


def _tools(file: Path, entries: list[str], agents: dict[str, Path]) -> list[str]:
    """Return the checked entries, the folders in which the agents' skills lie, and the agents that bring tools."""
    named = [_tool(file, f"spec.tools[{i}]", entry) for i, entry in enumerate(entries)]
    skills = [str(skill.folder.parent) for path in agents.values() for skill in skills_of_agent(path)]
    own = [str(path) for path in agents.values() if brings_tools(path)]
    return [*named, *(one for one in dict.fromkeys([*skills, *own]) if one not in named)]


def _tool(file: Path, key: str, entry: str) -> str:
    """Return the checked entry: a file if it looks like one, else an importable module, of which `:NAME` picks one
    tool; a file of MCP servers; or a folder of skills."""
    place, mark, tool = entry.partition(":")
    if "/" in place and (file.parent / place).is_dir():
        return str((file.parent / place).resolve())
    if is_server_file(entry):
        path = str(_existing(file, key, entry))
        try:
            if brings_tools(Path(path)) or runs_program(Path(path)):
                raise SetupError(f"{entry} is an agent: name it in spec.agents, its tools are served then")
            read_servers(path)
        except SetupError as error:
            raise SpecError(str(error), key=key, files=(file,)) from error
        return path
    if place.endswith(".py") or "/" in place:
        return f"{_existing(file, key, place)}{mark}{tool}"
    if not all(part.isidentifier() for part in place.split(".")):
        raise SpecError(f"{entry!r} is neither a .py file nor the name of a module", key=key, files=(file,))
    return entry


def _existing(file: Path, key: str, entry: str) -> Path:
    path = (file.parent / entry).resolve()
    if not path.is_file():
        raise SpecError(f"there is no file {path}", key=key, files=(file,))
    return path


def _keys(model: ModelSpec) -> set[str]:
    """Return the names of the variables that hold the keys of the model and of those that stand in for it."""
    return {model.key_env}.union(*map(_keys, model.fallbacks))

"""Read a team as the components that a cluster runs, with the names of its tools and the NATS users that they need."""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import yaml

from cadre.adapters.tool_entries import load_entry
from cadre.deploy.k8s.components import Component, Files, object_name
from cadre.deploy.k8s.pod_spec import AGENT_FOLDER, PRICES_FILE
from cadre.deploy.k8s.values import Values
from cadre.deploy.team_file import TeamSpec
from cadre.engine.toolset import callable_tools
from cadre.errors import SetupError, SpecError
from cadre.protocol.nats_users import Role, team_roles
from cadre.protocol.topology import Topology
from cadre.spec.agent import AgentSpec
from cadre.spec.agent_file import files_of_agent, read_agent
from cadre.spec.kinds import facts_of

VALUES_FILE = "kubernetes.yaml"

_TEAM_FOLDER = "/etc/cadre/team"
_SKIPPED_SUFFIXES = (".pyc", ".pyo")


def components_of(team: TeamSpec, values: Values) -> list[Component]:
    """Return the components of the team: the gateway, sandboxes and memory first, then tools and agents. Raises
    SetupError."""
    agents = {name: read_agent(file) for name, file in team.agents.items()}
    components = [Component("gateway", "", ["gateway"])]
    for pool in sorted({*team.pools, *values.pools}):
        consumers = [Topology.code_consumer(pool)]
        components.append(Component("sandbox", pool, ["sandbox", "--pool", pool], consumers, ["--pool", pool]))
    if team.needs_memory if (enabled := values.memory_service.enabled) is None else enabled:
        components.append(Component("memory", "", ["memory"], provides=["--service", "memory"]))
    if values.telemetry.url:
        components.append(Component("tracer", "", ["tracer"], provides=["--service", "tracer"]))
    components += _programs(team, values)
    components += _tools(team, values)
    components += [_agent(spec, team.agents[name], values) for name, spec in agents.items()]
    return [component._replace(instance=values.instance) for component in components]


def _agent(spec: AgentSpec, file: Path, values: Values) -> Component:
    models = [spec.model, *spec.model.fallbacks]
    paths = files_of_agent(file)
    root = Path(os.path.commonpath([path.parent for path in paths]))
    contents = {path.relative_to(root).as_posix(): _read(path) for path in paths}
    if values.prices:
        contents[PRICES_FILE] = yaml.safe_dump(msgspec.to_builtins(values.prices), sort_keys=False).encode()
    return Component(
        "agent",
        spec.name,
        ["agent", f"{AGENT_FOLDER}/{next(iter(contents))}"],
        [Topology.agent_consumer(spec.name)],
        ["--agent", spec.name],
        # Others ask what it takes, answers and needs, and the instructions may be long.
        at_rest=msgspec.json.encode(msgspec.structs.replace(spec, instructions="")).decode(),
        key_variables=list(dict.fromkeys(model.key_env for model in models)),
        model_urls=[model.url for model in models if model.url],
        asks_for=_open_variables(spec),
        files=Files(object_name(values.instance, "agent", spec.name), AGENT_FOLDER, contents),
    )


def _open_variables(spec: AgentSpec) -> list[str]:
    if not facts_of(spec).asks_model:
        return []
    return [name for name, said in (("CADRE_MODEL_URL", spec.model.url), ("CADRE_MODEL", spec.model.name)) if not said]


def _tools(team: TeamSpec, values: Values) -> Iterator[Component]:
    files = (
        None if values.files else Files(object_name(values.instance, "team", team.name), _TEAM_FOLDER, _files_of(team))
    )
    for entry, name in zip(team.tools, tool_service_names(team.tools), strict=True):
        is_file = "/" in entry.partition(":")[0]
        offered = values.workload(f"tools/{name}").tools or _offered(entry, name)
        yield Component(
            "tools",
            name,
            ["tools", _inside(team, entry, values.files or _TEAM_FOLDER) if is_file else entry],
            [Topology.tool_consumer(tool) for tool in offered],
            [option for tool in offered for option in ("--tool", tool)],
            files=files if is_file else None,
        )


def _programs(team: TeamSpec, values: Values) -> Iterator[Component]:
    """Yield what runs the programs among the agents, each in an image that has the program's packages."""
    files = (
        None if values.files else Files(object_name(values.instance, "team", team.name), _TEAM_FOLDER, _files_of(team))
    )
    for pool, file in team.programs.items():
        path = _inside(team, str(file), values.files or _TEAM_FOLDER)
        consumers = [Topology.code_consumer(pool)]
        yield Component("sandbox", pool, ["tools", path], consumers, ["--pool", pool], files=files)


def _offered(entry: str, name: str) -> list[str]:
    """Return the names of the tools in a module. Raises SpecError when it can only be imported in its image."""
    try:
        return [tool.name for tool in load_entry(entry)]
    except SetupError as error:
        raise SpecError(
            f"{error}: if it can only be imported in its image, name its tools in the values:"
            f" workloads: {{tools/{name}: {{tools: [NAME, …]}}}}"
        ) from error


def _inside(team: TeamSpec, entry: str, folder: str) -> str:
    source, mark, function = entry.partition(":")
    try:
        relative = Path(source).relative_to(team.folder).as_posix()
    except ValueError as error:
        raise SpecError(
            f"lies outside the team's folder {team.folder}: move it there, or install it in the image"
            " and name it as a module",
            files=(source,),
        ) from error
    return f"{folder}/{relative}{mark}{function}"


def _files_of(team: TeamSpec) -> dict[str, bytes]:
    """Return the files that tools may read: the team's folder without those of other services."""
    served = {*map(Path, team.tools), *team.programs.values()}
    agents = {file.resolve() for file in team.agents.values()} - served
    others = {team.file, team.folder / VALUES_FILE, team.script, *agents}
    return {
        path.relative_to(team.folder).as_posix(): _read(path)
        for path in sorted(team.folder.rglob("*"))
        if path.is_file() and path not in others and not _is_skipped(path.relative_to(team.folder).parts)
    }


def _is_skipped(parts: Sequence[str]) -> bool:
    hidden = any(part.startswith(".") or part == "__pycache__" for part in parts)
    return hidden or parts[-1].endswith(_SKIPPED_SUFFIXES)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror}", files=(path,)) from error


def roles_of(team: TeamSpec, *, memory: bool | None = None) -> list[Role]:
    """Return the roles of all services of the team; `memory` overrides whether the memory service is one.

    Raises SetupError when a module of tools cannot be loaded, or an agent's file cannot be read."""
    tools = [
        (name, tuple(tool.name for tool in load_entry(entry)))
        for entry, name in zip(team.tools, tool_service_names(team.tools), strict=True)
    ]
    calls = {name: tuple(callable_tools(read_agent(file))) for name, file in team.agents.items()}
    memory = team.needs_memory if memory is None else memory
    return team_roles(team.agents, tools, [*team.pools, *team.programs], memory=memory, calls=calls)


def roles_of_components(team: TeamSpec, components: Iterable[Component]) -> list[Role]:
    """Return the roles of these services of a cluster, and the operator's. Raises SetupError."""
    roles = [Role(kind="operator")]
    for one in components:
        if one.role == "agent":
            calls = tuple(callable_tools(read_agent(team.agents[one.name])))
            roles.append(Role(kind="agent", name=one.name, calls=calls))
        elif one.role == "tools":
            roles.append(Role(kind="tools", name=one.name, tools=tuple(one.provides[1::2])))
        elif one.role != "provision":
            roles.append(Role(kind=one.role, name=one.name))
    return roles


def tool_service_names(entries: Iterable[str]) -> list[str]:
    """Return the names of the services of these tool modules, in their order and each once."""
    taken: list[str] = []
    for entry in entries:
        source, _, function = entry.partition(":")
        stem = Path(source).stem if "/" in source else source.rpartition(".")[2]
        wanted = re.sub(r"[^a-zA-Z0-9_-]", "-", stem + (function and f"-{function}"))
        taken.append(unused_name(wanted, taken))
    return taken


def unused_name(name: str, taken: Collection[str]) -> str:
    """Return the name, with a number behind it if it is taken."""
    return next(n for n in (name, *(f"{name}-{i}" for i in range(2, 1000))) if n not in taken)

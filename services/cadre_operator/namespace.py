"""The objects of a namespace as services: each read as the file that it would be on a disk.

People who write objects must not be able to make the operator do more than render: it opens only files that it has
written itself, starts no command, and imports no module but Cadre's own tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from cadre.automation.automation_file import DEFINITIONS
from cadre.deploy.k8s.components import Component
from cadre.deploy.k8s.manifest import Manifest, merged
from cadre.deploy.k8s.object_kinds import ToolServerSpec
from cadre.deploy.k8s.values import Values
from cadre.deploy.team_components import components_of
from cadre.deploy.team_file import TeamBody, TeamSpec
from cadre.engine.toolset import callable_tools
from cadre.errors import SetupError, SpecError, UnknownModel
from cadre.protocol.nats_users import Role, tools_of
from cadre.spec.agent import SHORT_PROMPTS, AgentSpec
from cadre.spec.agent_file import leaned_on, read_agent
from cadre.spec.model_file import read_model
from cadre.spec.names import TEAM_FILE, check_name
from cadre.structs import misfit_of

_OWN_TOOLS = ("cadre_standard_tools", "cadre_browser")
"""The packages whose tools the operator looks up itself."""

_NO_TEAM = "-"
"""The folder of agents that no team names, among those of the teams; no object is called so."""

REVISION_OF = "cadre.dev/revision-of"
"""The annotation that makes an Agent a second revision of another one: it names that."""

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(:\w+)?")

Objects = Mapping[str, Sequence[Manifest]]
"""The objects of a namespace, by kind."""


class Service(NamedTuple):
    """One service that objects ask for."""

    component: Component
    owners: list[Manifest]
    role: Role
    """Its NATS user."""
    replicas: int | None = None
    """The number of pods in its object; None: as the values say."""


class Reading(NamedTuple):
    """The result of reading the objects of a namespace."""

    services: list[Service]
    problems: dict[str, str]
    """The errors in objects, by uid."""
    values: Values
    lacks: dict[str, str]
    """The agents and tools that an object names and nothing here is, by its uid; "" when there are all."""


def read_namespace(objects: Objects, values: Values, folder: Path) -> Reading:
    """Return the services of the objects, whose files are written below the folder."""
    counts = {_uid(one): one["spec"].get("replicas") for many in objects.values() for one in many}
    reader = _NamespaceReader({kind: _uncounted(many) for kind, many in objects.items()}, values, folder)
    reader.write_models()
    teams = reader.read_teams()
    reader.read_agents(teams)
    reader.read_tool_servers()
    reader.read_platform()
    services = [
        one._replace(replicas=counts[_uid(one.owners[0])]) if one.component.role in ("agent", "tools") else one
        for one in reader.services
    ]
    return Reading(services, reader.problems, reader.values, reader.lacks())


class _NamespaceReader:
    def __init__(self, objects: Objects, values: Values, folder: Path) -> None:
        self._objects = objects
        self._folder = folder
        self.values = values
        self.services: list[Service] = []
        self.problems: dict[str, str] = {}
        self._models: dict[str, Path] = {}
        self._agents: dict[str, AgentSpec] = {}
        self._pools: set[str] = set()
        self._needs_memory = False

    def write_models(self) -> None:
        """Write and check the models."""
        for found in self._objects["Model"]:
            file = self._folder / "models" / f"{_name(found)}.yaml"
            _write(file, {**_head(found), "metadata": {"name": _name(found)}})
            try:
                read_model(file)
            except SpecError as error:
                self._refuse(found, error)
            else:
                self._models[_name(found)] = file

    def read_teams(self) -> dict[str, str]:
        """Write the teams' files. Returns the team of each agent that one names."""
        teams: dict[str, str] = {}
        known = {_name(agent) for agent in self._objects["Agent"]}
        for found in self._objects["Team"]:
            try:
                body = msgspec.convert(found["spec"], TeamBody)
                members = [_stem(entry) for entry in body.agents]
                for member in members:
                    if members.count(member) > 1:
                        raise SpecError(f"{member} is there twice", key="spec.agents")
                    if teams.setdefault(member, _name(found)) != _name(found):
                        raise SpecError(f"{member} is in the team {teams[member]} already", key="spec.agents")
                self._add_modules(found, body.tools)
            except msgspec.ValidationError as error:
                self.problems[_uid(found)] = str(misfit_of(error))
                continue
            except SetupError as error:
                self._refuse(found, error)
                continue
            kept = {key: value for key in ("model", "variables") if (value := found["spec"].get(key))}
            document = {
                **_head(found),
                "metadata": {"name": _name(found)},
                "spec": {"agents": [f"{member}.yaml" for member in members], **kept},
            }
            _write(self._home(_name(found)) / TEAM_FILE, document)
            if missing := [member for member in members if member not in known]:
                self.problems[_uid(found)] = f"spec.agents: there is no Agent {', '.join(missing)} yet"
        return teams

    def read_agents(self, teams: Mapping[str, str]) -> None:
        """Read each agent with its team's file and the models."""
        firsts = {_name(one) for one in self._objects["Agent"] if _first(one) == _name(one)}
        for found in self._objects["Agent"]:
            name = _first(found)
            home = self._home(teams.get(_name(found)) or teams.get(name, _NO_TEAM))
            try:
                check_name("Agent", name)
                if name != _name(found) and name not in firsts:
                    raise SpecError(
                        f"{REVISION_OF}: there is no Agent {name} here that is a first revision:"
                        " apply that one, or take the annotation away",
                        key="metadata.annotations",
                    )
                _check_agent(found, name)
                for model, file in self._models.items():
                    _write_text(home / "models" / f"{model}.yaml", file.read_text("utf-8"))
                file = home / f"{name}.yaml"
                _write(file, {**_head(found), "metadata": {"name": name, "labels": _labels(found)}})
                spec = read_agent(file)
                needs = leaned_on(spec)
                team = TeamSpec(name=name, file=home / TEAM_FILE, agents={name: file})
                component = self._component(team, f"agent/{name}", self.values)
                if name != _name(found):
                    component = component.second(_name(found))
            except SetupError as error:
                self._refuse(found, error)
                continue
            self._agents[_uid(found)] = spec
            self._pools |= {*needs.pools}
            self._needs_memory |= needs.memory
            role = Role(kind="agent", name=name, calls=tuple(callable_tools(spec)))
            self.services.append(Service(component, [found], role))
        shared = {one.component.key for one in self.services if one.component.beside}
        self.services = [
            one._replace(component=one.component._replace(is_shared=True)) if one.component.key in shared else one
            for one in self.services
        ]

    def read_tool_servers(self) -> None:
        """Read each service of tools."""
        for found in self._objects["ToolServer"]:
            name = _name(found)
            try:
                check_name("ToolServer", name)
                spec = msgspec.convert(found["spec"], ToolServerSpec)
                if bool(spec.module) == bool(spec.mcp_servers):
                    raise SpecError("give either a module or mcpServers", key="spec")
                self._add_tools(found, name, self._entry(name, spec, found["spec"].get("mcpServers")), spec)
            except msgspec.ValidationError as error:
                self.problems[_uid(found)] = str(misfit_of(error))
            except SetupError as error:
                self._refuse(found, error)

    def read_platform(self) -> None:
        """The services that belong to no single agent, where some team is there to own them."""
        owners = list(self._objects["Team"])
        if not owners:
            return
        team = TeamSpec(
            name="team",
            file=self._folder / TEAM_FILE,
            pools=sorted(self._pools),
            needs_memory=self._needs_memory,
        )
        for component in components_of(team, self.values):
            role = Role(kind=component.role, name=component.name)  # type: ignore[arg-type]  # none is `provision`
            self.services.append(Service(component, owners, role))

    def lacks(self) -> dict[str, str]:
        """Return the agents and tools that each agent and definition names and nothing here is, by its uid."""
        agents = {_first(one) for one in self._objects["Agent"]}
        tools = {tool for service in self.services for tool in tools_of(service.role)}
        found: dict[str, str] = {}
        for uid, spec in self._agents.items():
            members = [one for one in spec.team if isinstance(one, str) and one not in agents]
            away = [f"agent {one}" for one in members] + [f"tool {one}" for one in spec.tools if one not in tools]
            found[uid] = f"there is no {', '.join(away)} in this namespace" if away else ""
        for kind in DEFINITIONS:
            for one in self._objects[kind.kind]:
                spec = one["spec"]
                named = [spec.get("agent"), *(spec.get("agents") or ())]
                away = [f"agent {name}" for name in named if name and name not in agents]
                found[_uid(one)] = f"there is no {', '.join(away)} in this namespace" if away else ""
        return found

    def _home(self, team: str) -> Path:
        return self._folder / "teams" / team

    def _add_modules(self, found: Manifest, modules: Iterable[str]) -> None:
        """The tools of a team: modules that the image has."""
        for entry in modules:
            if not _MODULE.fullmatch(entry):
                raise SpecError(
                    f"{entry!r} is no module of the image: files of tools and of MCP servers are objects"
                    " of kind ToolServer",
                    key="spec.tools",
                )
            name = re.sub(r"[^a-zA-Z0-9-]", "-", entry.rpartition(".")[2])
            self._add_tools(found, name, entry, ToolServerSpec(module=entry))

    def _entry(self, name: str, spec: ToolServerSpec, servers: Any) -> str:
        """Return the module, or the file of the servers."""
        if spec.module:
            if not _MODULE.fullmatch(spec.module):
                raise SpecError(f"{spec.module!r} is no module: write package.module", key="spec.module")
            return spec.module
        file = self._folder / "tools" / name / f"{name}.yaml"
        _write(file, {"mcpServers": servers})
        return str(file)

    def _add_tools(self, found: Manifest, name: str, entry: str, spec: ToolServerSpec) -> None:
        key, tools = f"tools/{name}", spec.tools or self.values.workload(f"tools/{name}").tools
        if not tools and not (spec.module.split(".")[0].split(":")[0] in _OWN_TOOLS and not spec.image):
            raise SpecError(
                "name the tools: the operator asks no MCP server and imports no module but those of"
                f" {' and '.join(_OWN_TOOLS)}",
                key="spec.tools",
            )
        if any(service.component.key == key for service in self.services):
            raise SpecError(f"{key} is there already: choose another name")
        layer: dict[str, Any] = {"tools": tools} if tools else {}
        if spec.image:
            layer["pod"] = {"containers": [{"name": "main", "image": spec.image}]}
        self.values = _with_workload(self.values, key, layer)
        # The values know it by the name of its module or file until it has its own.
        own = _with_workload(self.values, "tools/*", {"tools": tools} if tools else {})
        own = msgspec.structs.replace(own, files="")
        team = TeamSpec(name=name, file=self._folder / "tools" / name / TEAM_FILE, tools=[entry])
        [component] = [one for one in components_of(team, own) if one.role == "tools"]
        component = component._replace(name=name)
        if component.files is not None:
            component = component._replace(files=component.files._replace(name=component.id))
        served = tuple(component.provides[1::2])
        self.services.append(Service(component, [found], Role(kind="tools", name=name, tools=served)))

    @staticmethod
    def _component(team: TeamSpec, key: str, values: Values) -> Component:
        return next(one for one in components_of(team, values) if one.key == key)

    def _refuse(self, found: Manifest, error: SetupError) -> None:
        # The files are the operator's own: an object has keys alone, and a model is another object.
        if isinstance(error, UnknownModel):
            error = UnknownModel(error.name, "apply a Model of this name", key=error.key)
        self.problems[_uid(found)] = error.explanation


def _uncounted(objects: Sequence[Manifest]) -> list[Manifest]:
    """Return the objects without what no file has: how many pods one has is the cluster's."""
    return [{**one, "spec": {key: value for key, value in one["spec"].items() if key != "replicas"}} for one in objects]


def _check_agent(found: Manifest, name: str) -> None:
    spec = found["spec"]
    if f"{name}.yaml" == TEAM_FILE:
        raise SpecError(f"{name} is the name of a team's file: choose another one", key="metadata.name")
    if spec.get("prompts") not in (None, SHORT_PROMPTS):
        raise SpecError(f"an object cannot refer to files: write {SHORT_PROMPTS}, or leave it out", key="spec.prompts")
    if "skills" in spec:
        raise SpecError("an object cannot refer to folders: serve skills as tools, from an image", key="spec.skills")


def _with_workload(values: Values, key: str, layer: dict[str, Any]) -> Values:
    workloads = {**values.workloads, key: merged(layer, values.workloads.get(key, {}), nulls=True)}
    return msgspec.structs.replace(values, workloads=workloads)


def _labels(found: Manifest) -> dict[str, str]:
    """Return the labels that people chose for the agent: those without a prefix, which tools set theirs with."""
    labels = found["metadata"].get("labels") or {}
    return {key: value for key, value in labels.items() if "/" not in key}


def _head(found: Manifest) -> dict[str, Any]:
    return {"apiVersion": found["apiVersion"], "kind": found["kind"], "metadata": {}, "spec": found["spec"]}


def _stem(entry: str) -> str:
    """Return the agent that a team's file names: by its name, or as the file of this name."""
    return Path(entry).stem if entry.endswith((".yaml", ".yml")) else entry


def _name(found: Manifest) -> str:
    return str(found["metadata"]["name"])


def _first(found: Manifest) -> str:
    """Return the agent that an Agent is: itself, or the one that it is a second revision of."""
    return (found["metadata"].get("annotations") or {}).get(REVISION_OF) or _name(found)


def _uid(found: Manifest) -> str:
    return str(found["metadata"]["uid"])


def _write(file: Path, document: Any) -> None:
    _write_text(file, yaml.safe_dump(document, sort_keys=False, allow_unicode=True))


def _write_text(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")

"""Agents and schedules as Python writes them: builders that yield the specifications which files yield."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from os import PathLike
from types import ModuleType
from typing import Any, Literal
from weakref import WeakKeyDictionary

import msgspec

from cadre.automation.automation_file import automation_of
from cadre.automation.schedule import ScheduleSpec
from cadre.errors import SetupError, SpecError
from cadre.options import explained, unknown_option
from cadre.spec.agent import AgentSpec, Limits, MemorySpec, Selector
from cadre.spec.kinds import section_types
from cadre.spec.model import ModelSpec
from cadre.structs import as_written
from cadre.tools.decorator import Tool, tool
from cadre.tools.json_types import answer_type
from cadre.tools.loading import AnyTool, HoldsTools, tools_of

_PROVIDERS = {
    *(
        "anthropic",
        "azure",
        "bedrock",
        "cohere",
        "deepseek",
        "gemini",
        "google",
        "google-gla",
        "google-vertex",
    ),
    *(
        "groq",
        "mistral",
        "ollama",
        "openai",
        "openai-chat",
        "openai-responses",
        "openrouter",
        "together",
        "xai",
    ),
}
"""The prefixes that other libraries write before a model's name, with a colon."""

_MAX_DESCRIPTION_CHARS = 200

_TOOLS: WeakKeyDictionary[Callable[..., Any], AnyTool] = WeakKeyDictionary()
"""The tool of each plain function that an agent was given: two agents share one."""


@explained(
    {
        "tool": "give functions by tools=[…]",
        "override": "give cadre.testing.Team another model",
        "run_stream": "start it with Team or Client, and read run.stream()",
        "iter": "start it with Team or Client, and read run.stream()",
    }
)
class AgentDefinition(HoldsTools):
    """An agent that Python describes: `spec` is what its runs keep, `tools` the functions that it brings, `team` its
    members that are defined in Python, `model` the test double that answers for its model.

    Args:
        description: What managers' models read of it; without one the beginning of its instructions.
        model: The model's name at its endpoint, a mapping of the section `model`, or for tests in one process a model
            of `cadre.testing`.
        tools: Functions with type hints, tools, modules of them, and names of tools that others serve.
        team: Agents that it delegates to, or their names.
        output_type: The type of its answers: a pydantic model, dataclass, `list[int]` …
    """

    def __init__(  # noqa: PLR0913 - the keys of an agent's file
        self,
        name: str,
        *,
        instructions: str = "",
        description: str = "",
        model: Any = None,
        tools: Sequence[Callable[..., Any] | AnyTool | ModuleType | str] = (),
        team: "Sequence[AgentDefinition | AgentSpec | Selector | Mapping[str, Any] | str]" = (),
        output_type: Any = None,
        kind: str | None = None,
        limits: Limits | Mapping[str, Any] | None = None,
        memory: MemorySpec | Mapping[str, Any] | None = None,
        permission: Literal["open", "restricted"] | None = None,
        approvals: Mapping[str, str] | None = None,
        approval_seconds: float | str | timedelta | None = None,
        timeouts: Mapping[str, float | str | timedelta] | None = None,
        planning_interval: int | None = None,
        checks: Sequence[str] | None = None,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        provide_run_summary: bool | None = None,
        prompts: str | PathLike[str] | None = None,
        labels: Mapping[str, str] | None = None,
        version: str | None = None,
        **sections: Any,
    ) -> None:
        """Describe an agent by the keys of its file, mappings as there; `sections` are those of its kind (`code=…`).

        Raises SpecError for what no file could say; UnknownOption, a TypeError too, lists what there is.
        """
        if not isinstance(name, str):
            raise SpecError(f"write the agent's name first, not {type(name).__name__} {name!r}", key="name")
        self.name = name
        self.output_type = output_type
        self.tools, tool_names = _tools(name, tools)
        self.team, members = _team(name, team)
        self.model, section = _model(name, model)
        given = {
            "kind": kind,
            "limits": limits,
            "memory": memory,
            "permission": permission,
            "approvals": _approvals(name, approvals),
            "approval_seconds": approval_seconds,
            "timeouts": timeouts,
            "checks": checks,
            "labels": labels,
            "planning_interval": planning_interval,
            "input_schema": input_schema,
            "output_schema": _output_schema(name, output_type, output_schema),
            "provide_run_summary": provide_run_summary,
            "prompts": prompts,
            "version": version,
            **_known_sections(sections),
        }
        fields = {key: _as_field(name, key, value) for key, value in given.items() if value is not None}
        fields |= {**_texts(name, instructions, description), "model": section}
        self.spec = _spec(name=name, tools=tool_names, team=members, **fields)

    def __repr__(self) -> str:
        return f"<agent {self.name}>"

    def brought_tools(self) -> list[AnyTool]:
        """Return the tools of the agent and of all agents below it that are defined in Python."""
        return list({id(one): one for agent in self.everybody().values() for one in agent.tools}.values())

    def everybody(self) -> "dict[str, AgentDefinition]":
        """Return the agent and all agents below it that are defined in Python, by name. Raises SpecError for two of
        one name."""
        return everybody([self])


def everybody(agents: "Iterable[AgentDefinition]") -> "dict[str, AgentDefinition]":
    """Return the agents and all agents below them that are defined in Python, by name. Raises SpecError for two of
    one name."""
    found: dict[str, AgentDefinition] = {}
    waiting = [*agents]
    for one in waiting:  # it grows
        if found.setdefault(one.name, one) is not one:
            raise SpecError("two agents have this name: rename one", agent=one.name)
        waiting += [member for member in one.team if found.get(member.name) is not member]
    return found


def spec_of(agent: "AgentDefinition | AgentSpec") -> AgentSpec:
    """Return the specification of an agent that Python has made in either way, checked once more, as its lists may have
    been changed. Raises SpecError."""
    return msgspec.structs.replace(agent.spec if isinstance(agent, AgentDefinition) else agent)


def tool_of(function: Callable[..., Any] | AnyTool) -> AnyTool:
    """Return the tool of a function, the same one each time. Raises ToolDefinitionError."""
    if isinstance(function, Tool):
        return function
    if not inspect.isfunction(function):
        return tool(function)
    if function not in _TOOLS:
        _TOOLS[function] = tool(function)
    return _TOOLS[function]


@explained()
class Schedule:
    """A schedule of runs, with the keys of its file as options; `cadre up FILE.py` gives it to the gateway.

    Args:
        name: Its name in the deployment.
        agent: The agent, or its name.
        task: The task of each run, a template.
        every: Seconds, a text such as `15m`, or a timedelta; or `cron` in its place.
        cron: Minute, hour, day, month and weekday, in `time_zone` (UTC).

    docs/automation.md has the other keys.

    Raises:
        SpecError: A key is wrong.

    Examples:
        >>> monday = Schedule("report", agent="writer", task="Report on last week.", cron="0 8 * * 1")
        >>> monday.spec.agent
        'writer'
    """

    def __init__(  # noqa: PLR0913 - the keys of a schedule's file
        self,
        name: str,
        *,
        agent: AgentDefinition | str,
        task: str,
        every: float | str | timedelta | None = None,
        cron: str | None = None,
        time_zone: str | None = None,
        start: datetime | date | str | None = None,
        end: datetime | date | str | None = None,
        count: int | None = None,
        overlap: Literal["skip", "queue", "allow", "cancel"] | None = None,
        missed: Literal["skip", "one", "all"] | None = None,
        window: float | str | timedelta | None = None,
        jitter: float | str | timedelta | None = None,
        paused: bool | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Describe a schedule by the keys of its file. Raises SpecError."""
        self.name = name
        given = {
            "agent": agent.name if isinstance(agent, AgentDefinition) else agent,
            "task": task,
            "every": every,
            "cron": cron,
            "time_zone": time_zone,
            "start": start,
            "end": end,
            "count": count,
            "overlap": overlap,
            "missed": missed,
            "window": window,
            "jitter": jitter,
            "paused": paused,
            "options": options,
        }
        try:
            self.keys = as_written({key: value for key, value in given.items() if value is not None})
            self.spec = automation_of(ScheduleSpec, name, dict(self.keys))
        except SpecError as error:
            error.in_file(f"schedule {name}")
            raise

    def __repr__(self) -> str:
        return f"<schedule {self.name}>"


# --- what is written in the place of a file's keys


def _tools(agent: str, given: Any) -> tuple[list[AnyTool], list[str]]:
    """Return the tools that the agent brings, and the names of all that it may call."""
    brought: dict[str, AnyTool] = {}
    names: list[str] = []
    for index, one in enumerate(_listed(agent, "tools", given)):
        if isinstance(one, str):
            names.append(one)
            continue
        if isinstance(one, ModuleType):
            found = tools_of(one)
            if not found:
                raise SpecError(f"module {one.__name__} has no tools", key=f"tools[{index}]", agent=agent)
        elif callable(one) or isinstance(one, Tool):
            found = [_as_tool(agent, index, one)]
        else:
            raise SpecError(
                f"{one!r} is no tool: give a function, a module with tools, or the name of a tool",
                key=f"tools[{index}]",
                agent=agent,
            )
        for tool_ in found:
            if brought.setdefault(tool_.name, tool_) is not tool_:
                raise SpecError(f"two tools are named {tool_.name}", key=f"tools[{index}]", agent=agent)
            names.append(tool_.name)
    return [*brought.values()], [*dict.fromkeys(names)]


def _as_tool(agent: str, index: int, given: Any) -> AnyTool:
    try:
        return tool_of(given)
    except SetupError as error:
        raise SpecError(str(error), key=f"tools[{index}]", agent=agent) from error


def _team(agent: str, given: Any) -> tuple[list[AgentDefinition], list[Any]]:
    """Return the members that Python defines, and what the specification holds of all."""
    defined: list[AgentDefinition] = []
    members: list[Any] = []
    for one in _listed(agent, "team", given):
        if isinstance(one, AgentDefinition):
            defined.append(one)
        members.append(one.name if isinstance(one, AgentDefinition | AgentSpec) else one)
    return defined, [dict(one) if isinstance(one, Mapping) else one for one in members]


def _listed(agent: str, key: str, given: Any) -> list[Any]:
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise SpecError(f"write {key} as a list", agent=agent)
    return [*given]


def _model(agent: str, given: Any) -> tuple[Any, ModelSpec]:
    """Return the test double, if one is given, and the section `model`."""
    match given:
        case None:
            return None, ModelSpec()
        case ModelSpec():
            return None, given
        case str():
            return None, ModelSpec(name=_model_name(agent, given))
        case Mapping():
            return None, ModelSpec(**given)
    if hasattr(given, "complete") or callable(given) or isinstance(given, list | tuple):
        return given, ModelSpec()
    raise SpecError(
        f"{type(given).__name__} {given!r} is no model: write its name, a mapping such as"
        " {'name': …, 'temperature': 0.2}, or a model of cadre.testing",
        key="model",
        agent=agent,
    )


def _model_name(agent: str, name: str) -> str:
    provider, colon, rest = name.partition(":")
    if colon and provider in _PROVIDERS:
        raise SpecError(
            f"{name!r}: write {rest!r}, the name that the endpoint knows; where that is say CADRE_MODEL_URL or"
            f" model={{'name': {rest!r}, 'url': …}}",
            key="model",
            agent=agent,
        )
    return name


def _output_schema(agent: str, output_type: Any, written: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if output_type is None:
        return written
    if written is not None:
        raise SpecError("write output_type or output_schema, not both", key="output_type", agent=agent)
    try:
        return answer_type(output_type).schema
    except SpecError as error:
        error.of_agent(agent)
        raise


def _approvals(agent: str, given: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if given is not None and True in given.values():
        raise SpecError("True: write 'always'", key="approvals", agent=agent)
    return given


def _spec(**fields: Any) -> AgentSpec:
    try:
        return AgentSpec(**fields)
    except SpecError as error:
        if not error.agent:
            error.of_agent(fields["name"])
        raise


def _texts(agent: str, instructions: Any, description: str) -> dict[str, str]:
    """Return the two texts; a description that is not given is the first line of the instructions."""
    if not isinstance(instructions, str):
        raise SpecError(
            f"write a text, not {type(instructions).__name__}: what differs from run to run belongs to the task or"
            " its inputs",
            key="instructions",
            agent=agent,
        )
    line = next((one.strip() for one in instructions.splitlines() if one.strip()), "")
    short = line[:_MAX_DESCRIPTION_CHARS] or f"The agent {agent}."
    return {"description": description or short, "instructions": instructions}


def _known_sections(sections: dict[str, Any]) -> dict[str, Any]:
    """Return the sections of kinds. Raises UnknownOption for any other key."""
    known = section_types()
    for key in sections:
        if key not in known:
            if key in _FOREIGN:
                raise unknown_option("Agent", key, [*_OPTIONS, *known], _FOREIGN[key])
            of = next((name for name, kind in _SECTIONS if key in kind.__struct_fields__), "")
            hint = f"write {of}={{{key!r}: …}}" if of else ""
            raise unknown_option("Agent", key, [*_OPTIONS, *known], hint)
    return sections


def _as_field(agent: str, key: str, value: Any) -> Any:
    """Return a value in the types of a specification, which are lists and dicts."""
    if isinstance(value, msgspec.Struct | str):
        return value
    try:
        return as_written(value)
    except SpecError as error:
        raise SpecError(error.problem, key=f"{key}.{error.key}".rstrip("."), agent=agent) from error


_FOREIGN = {
    "deps_type": "tools read the variables of their own modules",
    "goal": "write it into instructions",
    "llm": "write model={'name': …}",
    "llm_config": "write model={'name': …}",
    "output_validators": "write checks=[…], expressions over the answer",
    "retries": "a model reads a tool's error and decides; model={'retries': …} is for its endpoint",
    "system": "write instructions=…",
    "timeout": "write limits={'seconds': …}",
    "deadline": "write limits={'seconds': …}",
}
"""Options of other libraries' agents that are no key here, each with what does the same."""

_SECTIONS = (("model", ModelSpec), ("limits", Limits))

_OPTIONS = tuple(
    name for name in inspect.signature(AgentDefinition.__init__).parameters if name not in ("self", "sections")
)

"""Check what the agents of a team expect of each other and of their tools: names that are offered, attributes that an
answer has, arguments that are taken."""

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from cadre.protocol.cards import Does, ToolCard
from cadre.spec.agent import AgentSpec, Selector
from cadre.spec.answer_schema import misfits
from cadre.spec.expression_types import Typed, Untold, attributes_read, misreadings, shape_of
from cadre.spec.expressions import templates_in
from cadre.spec.member_call import call_schema
from cadre.spec.policy import expression_of, is_expression, names_in
from cadre.spec.policy_file import GROUPS

ProblemLevel = Literal["error", "missing", "warning"]
"""The severity: it cannot work; the team does not offer it, though others may; it may go wrong."""


class ContractProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that an agent expects and that does not hold."""

    agent: str
    path: str
    """Place in the agent's file: `spec.workflow.steps.decide.when`."""
    text: str
    """The problem, and what to do about it."""
    level: ProblemLevel = "error"


class TeamReach(msgspec.Struct, frozen=True, kw_only=True):
    """The tools and agents that those of a team may call, as far as they are known."""

    tools: Mapping[str, ToolCard] = {}
    agents: Mapping[str, AgentSpec] = {}
    served: frozenset[str] = frozenset()
    """Tools that the deployment's own services offer, whose cards are not available here."""
    is_whole: bool = True
    """True if there is nothing else: what is not named here is missing."""


class TaskInputs(msgspec.Struct, frozen=True):
    """The inputs of a task that an agent reads."""

    needed: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()
    """The inputs that it reads if they are there."""
    takes_any: bool = True
    """True if it uses all other inputs too: a model reads all of them."""


class Callee(NamedTuple):
    """A tool or member, with what it takes."""

    who: str
    """`the tool look`, `agent judge`"""
    takes: dict[str, Any]
    """JSON Schema of an object; {}: anything."""


class AgentContract(NamedTuple):
    """The expectations of an agent's own section."""

    problems: Iterable[ContractProblem] = ()
    """The expectations of tools and members that do not hold; found out as it is read."""
    inputs: TaskInputs = TaskInputs()
    """The inputs of a task that it reads."""


def common_problems(spec: AgentSpec, reach: TeamReach) -> Iterator[ContractProblem]:
    """Yield what does not hold for an agent of any kind."""
    yield from _missing(spec, reach)
    yield from _rule_problems(spec, reach)
    for index, check in enumerate(spec.checks):
        path = f"spec.checks[{index}]"
        if (expression := expression_of(check)) is not None:
            yield from read_problems(spec, path, expression, _judged(spec), is_condition=True)
        elif check in reach.tools:
            yield from _check_tool(spec, path, reach.tools[check])
    for name, policy in spec.approvals.items():
        if (expression := expression_of(policy)) is None:
            continue
        if name in reach.tools:
            yield from _policy(spec, name, expression, callee_of(reach.tools[name]))
        elif name in reach.agents:
            takes = call_schema(reach.agents[name].input_schema)
            yield from _policy(spec, name, expression, Callee(f"agent {name}", takes))


def read_problems(
    spec: AgentSpec, path: str, text: str, names: Mapping[str, Typed], *, is_condition: bool = False
) -> Iterator[ContractProblem]:
    """Yield what a template or condition of the agent reads in vain."""
    for found in misreadings(text, names, is_condition=is_condition):
        level: ProblemLevel = "error" if found.is_certain else "warning"
        yield ContractProblem(agent=spec.name, path=path, text=found.text, level=level)


def argument_problems(callee: Callee, arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names of arguments that a tool or member does not take as they are written, and why; templates may become
    anything."""
    schema = callee.takes
    properties = schema.get("properties", {})
    about_one = {key: value for key, value in schema.items() if key in _ABOUT_ONE}
    for name, value in arguments.items():
        if name not in properties and schema.get("additionalProperties") is False:
            takes = ", ".join(properties) or "nothing"
            yield name, f"{callee.who} takes no {name!r}; it takes {takes}"
        elif not _is_filled_later(value):
            for misfit in misfits(about_one, {name: value}):
                yield name, f"does not fit {callee.who}: {misfit.partition(': ')[2]}"


def object_problem(callee: Callee, arguments: Mapping[str, Any]) -> str | None:
    """Return why arguments of which each fits do not fit together; None where they do, or may once they are filled."""
    schema = callee.takes
    if not schema.keys() - _ABOUT_ONE - {"required"} or _is_filled_later(dict(arguments)):
        return None
    wrong = misfits(schema, dict(arguments), "inputs")
    return f"does not fit {callee.who}: {'; '.join(wrong)}" if wrong else None


_ABOUT_ONE = {"type", "properties", "patternProperties", "additionalProperties", "$defs", "definitions"}
"""The keywords with which a schema describes one argument, independently of the others."""


def _is_filled_later(value: Any) -> bool:
    return any("{{" in text or "{%" in text for text in templates_in(value))


def missing_arguments(callee: Callee, arguments: Mapping[str, Any]) -> list[str]:
    """Return what the tool or member needs and is not given."""
    return [name for name in callee.takes.get("required", []) if name not in arguments]


def callee_of(one: ToolCard | AgentSpec) -> Callee:
    """Return what a step of a workflow or plan calls: a tool, or a member with its inputs."""
    if isinstance(one, ToolCard):
        return Callee(f"the tool {one.name}", one.input_schema)
    return Callee(f"agent {one.name}", one.input_schema if one.input_schema is not None else {})


def answer_type(spec: AgentSpec) -> Typed:
    """Return what is known of an agent's answers."""
    shape = shape_of(spec.output_schema, f"the output_schema of agent {spec.name}")
    if shape is None and spec.output_schema is None:
        return Untold(f"nothing says what an answer of agent {spec.name} holds: give it an output_schema")
    return shape


def inputs_type(spec: AgentSpec) -> Typed:
    """Return what is known of the inputs of an agent's tasks."""
    return shape_of(spec.input_schema, f"the input_schema of agent {spec.name}")


def calls_type(spec: AgentSpec, *, with_errors: bool) -> Typed:
    """Return what is known of the calls that an agent makes."""
    error = {"error": {"type": ["string", "null"]}} if with_errors else {}
    properties: dict[str, Any] = {"name": name_schema(spec), "arguments": {"type": "object"}, **error}
    one = {"type": "object", "properties": properties, "required": [*properties]}
    return shape_of({"type": "array", "items": one}, "the list of calls")


def name_schema(spec: AgentSpec) -> dict[str, Any]:
    """The names that an agent's calls may have; any, where labels select its team."""
    if any(isinstance(member, Selector) for member in spec.team):
        return {"type": "string"}
    return {"enum": [*spec.tools, *map(str, spec.team)]}


def inputs_of_checks(spec: AgentSpec) -> TaskInputs:
    """Return the inputs of the task that the agent's checks read."""
    found = [
        attributes_read(expression, "inputs", is_condition=True)
        for check in spec.checks
        if (expression := expression_of(check)) is not None
    ]
    return TaskInputs(
        frozenset(name for needed, _, _ in found for name in needed),
        frozenset(name for _, known, _ in found for name in known),
    )


def _judged(spec: AgentSpec) -> dict[str, Typed]:
    task = shape_of({"type": "string"}, "a task")
    known = {"answer": answer_type(spec), "task": task, "inputs": inputs_type(spec)}
    return {**known, "calls": calls_type(spec, with_errors=True)}


def _missing(spec: AgentSpec, reach: TeamReach) -> Iterator[ContractProblem]:
    if not reach.is_whole:
        return
    checks = [(f"spec.checks[{i}]", check) for i, check in enumerate(spec.checks) if not is_expression(check)]
    named = [*((f"spec.tools[{i}]", tool) for i, tool in enumerate(spec.tools)), *checks]
    offered = {*reach.tools, *reach.served}
    for path, name in named:
        if name not in offered:
            text = (
                f"no tool {name!r} is offered here; there are {_listed(offered)}: name one, or add its module to"
                " spec.tools of the team"
            )
            yield ContractProblem(agent=spec.name, path=path, text=text, level="missing")
    for index, member in enumerate(spec.team):
        others = [one for one in reach.agents.values() if one.name != spec.name or member == spec.name]
        if not any(_is_meant(member, one) for one in others):
            who = "the name" if isinstance(member, str) else "the labels"
            text = (
                f"no agent here has {who} {member}; there are {_listed({*reach.agents})}: name one, or add its file to"
                " spec.agents of the team"
            )
            yield ContractProblem(agent=spec.name, path=f"spec.team[{index}]", text=text, level="missing")


def _rule_problems(spec: AgentSpec, reach: TeamReach) -> Iterator[ContractProblem]:
    """Yield what the agent's policies cannot know: tools that do not declare `does`, and rules on unknown names."""
    said = [pattern for policy in spec.policies for pattern in policy.tools]
    for index, tool in enumerate(spec.tools if spec.policies else ()):
        card = reach.tools.get(tool)
        if card is None or card.does is not None or any(fnmatchcase(tool, pattern) for pattern in said):
            continue
        text = (
            f"the tool {tool} does not say what a call does, so its calls are ruled as `undeclared`: say it by"
            " @tool(does=…), or in `tools` of a policy"
        )
        yield ContractProblem(agent=spec.name, path=f"spec.tools[{index}]", text=text, level="warning")
    if any(isinstance(member, Selector) for member in spec.team):
        return
    names = {*spec.tools, *map(str, spec.team), *get_args(Does), *GROUPS}
    for policy in spec.policies:
        for rule in policy.rules:
            for one in rule.calls:
                if not any(fnmatchcase(name, one) for name in names):
                    text = f"the rule {rule.name} is about {one}, no kind of calls and none of its tools"
                    yield ContractProblem(agent=spec.name, path="spec.policies", text=text, level="warning")


def _is_meant(member: str | Selector, agent: AgentSpec) -> bool:
    if isinstance(member, str):
        return member == agent.name
    return member.labels.items() <= agent.labels.items()


def _listed(names: set[str] | frozenset[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _check_tool(spec: AgentSpec, path: str, card: ToolCard) -> Iterator[ContractProblem]:
    """A tool that checks answers takes `answer` and `task`, and perhaps `calls`."""
    taken, needed = card.input_schema.get("properties", {}), card.input_schema.get("required", [])
    lacks = [name for name in ("answer", "task") if name not in taken]
    asks = [name for name in needed if name not in ("answer", "task", "calls")]
    if lacks or asks:
        what = f"does not take {' and '.join(lacks)}" if lacks else f"needs {' and '.join(asks)}"
        text = f"the tool {card.name} {what}: a check is given answer and task, and calls if it takes them"
        yield ContractProblem(agent=spec.name, path=path, text=text)


def _policy(spec: AgentSpec, name: str, expression: str, callee: Callee) -> Iterator[ContractProblem]:
    """A policy that fails asks a person: what is wrong with it stops nothing."""
    properties, source = callee.takes.get("properties", {}), callee.who
    names = {key: shape_of(about, f"{source}'s {key}") for key, about in properties.items()}
    path = f"spec.approvals.{name}"
    if unknown := names_in(spec.approvals[name]) - properties.keys():
        takes = _listed({*properties})
        text = f"asks about {_listed(unknown)}, which {source} does not take ({takes}): a person is always asked"
        yield ContractProblem(agent=spec.name, path=path, text=text, level="warning")
    for problem in read_problems(spec, path, expression, names, is_condition=True):
        yield msgspec.structs.replace(problem, level="warning")

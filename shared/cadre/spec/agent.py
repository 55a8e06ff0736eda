"""The specification of an agent: its model, tools, team, limits and memory, checked when it is made."""

from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args

import msgspec
from msgspec import UNSET, UnsetType

from cadre.errors import SpecError
from cadre.protocol.messages import MemoryScope
from cadre.protocol.policy import PLAN_TOOLS, Policy
from cadre.protocol.usage import Budget, Seconds
from cadre.spec.answer_schema import check_schema
from cadre.spec.durations import WithLengths
from cadre.spec.kinds import DEFAULT, AsInFiles, declared_kinds, folded, once, section_types, unfolded
from cadre.spec.model import (
    ModelSpec,
    NamedFunction,
    ReasoningEffort,
    check_api,
    check_fallbacks,
    check_urls,
    model_bounds,
)
from cadre.spec.names import check_bounds, check_name
from cadre.spec.policy import check_policy, is_expression, names_in
from cadre.spec.policy_file import check_policies
from cadre.structs import as_written, known_keys, misfit_of, sections_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cadre.spec.kinds import Section

    AnySection = Section  # at run time, `file_fields` sets it

S = TypeVar("S", bound=msgspec.Struct)

SHORT_PROMPTS = "short"
"""In place of a prompt file's path: the shipped prompts for small models."""


class Selector(msgspec.Struct, metaclass=WithLengths, frozen=True):
    """Selects team members: every agent that has all these labels.

    Examples:
        >>> str(Selector({"role": "checker"}))
        'role=checker'
    """

    labels: dict[str, str]

    def __str__(self) -> str:
        return ",".join(f"{key}={value}" for key, value in sorted(self.labels.items()))


class Limits(msgspec.Struct, metaclass=WithLengths, frozen=True, kw_only=True, omit_defaults=True):
    """Bounds of each run of the agent. A task may set narrower ones, never wider.

    The keys are those of `limits` in an agent file (docs/agents.md). Lengths of time are seconds, or texts such as
    `10m`.

    Raises:
        SpecError: A value is wrong.

    Examples:
        >>> Limits(max_steps=10, seconds="10m").seconds
        600.0
    """

    max_steps: int = 20
    depth: int = 8
    """Levels of delegation below the root run."""
    cycles: int = 0
    """The number of times that an agent may appear again below itself."""
    observation_chars: int = 20_000
    """A longer observation is cut in the middle before the model reads it."""
    images: int = 4
    """The number of the latest images from tools that one request shows; those of the task do not count."""
    parallel: int = 32
    """Calls of one run that are sent at once; further ones wait their turn."""
    away: Seconds | None = 60.0
    """Seconds that a call waits in the queue of a tool, team member or sandbox that is away; None: until it is back."""
    repeats: int = 5
    """The number of times that the same call may give the same result before it is refused; 0 is no bound. After as
    many refusals the run ends."""
    calls: int = 3_000
    """Calls that the code of one run and of all runs below it may make, in all blocks."""
    stored_mb: int = 1_024
    """Megabytes that the code of one run and of all runs below it may have stored: variables, arguments and outputs."""
    seconds: Seconds | None = None
    """Seconds that a run may take, waits included."""
    budget: Budget | None = None
    """The most that a run and all runs below it may use together."""


MOST_RECALLED = 100
"""The most memories that one search returns."""


class MemorySpec(msgspec.Struct, metaclass=WithLengths, frozen=True, kw_only=True, omit_defaults=True):
    """The memory that an agent keeps beyond its runs in the memory service (`cadre memory`).

    The keys are those of `memory` in an agent file (docs/memory.md).

    Examples:
        >>> MemorySpec(recall=5, remember="answers", scope="user").recall
        5
    """

    recall: int = 0
    """The number of memories that the model is shown when a run begins, the most relevant first."""
    remember: Literal["nothing", "answers", "steps"] = "nothing"
    """The part of each run that is kept: its task and answer, or every finished step as well."""
    scope: MemoryScope = "agent"
    """The runs that share what is kept. In a run without a session or person, those two mean the run's own tree."""
    reads: tuple[MemoryScope, ...] = ("run", "session", "agent", "team", "user")
    """The scopes from which memories are recalled, as far as the run has them."""
    team: str = ""
    """The name that the agents of a team share; required for the scope `team`."""
    seconds: Seconds = 10.0
    """Seconds that a run waits for its memories before it begins without them."""


class AgentSpec(msgspec.Struct, metaclass=AsInFiles, frozen=True, kw_only=True, omit_defaults=True):
    """One agent. Built from YAML by `read_agent`, or in Python."""

    name: str
    description: str
    kind: str = DEFAULT
    sections: "list[AnySection]" = []
    """The kinds' own settings: at most one section per kind."""
    model: ModelSpec = ModelSpec()
    instructions: str = ""
    tools: list[str] = []
    team: list[str | Selector] = []
    limits: Limits = Limits()
    memory: MemorySpec = MemorySpec()
    permission: Literal["open", "restricted"] = "open"
    """`restricted`: a person must agree to every tool call whose tool or agent does not say otherwise."""
    approvals: dict[str, str] = {}
    """The approval that a call needs, by tool or team member (`*`: any other): `never`, `always` or
    `when: <expression over the arguments>`. It overrides the tool's own policy."""
    policies: list[Policy] = []
    """Rules about calls. A file names shipped policies and files, or holds rules:
    `[careful, ./house.yaml, {rules: …}]`."""
    approval_seconds: Seconds | None = None
    """Seconds that a call waits for a person before it counts as rejected; None is for ever."""
    timeouts: dict[str, Seconds] = {}
    """Seconds that a call may take from being sent to its answer, by tool or team member."""
    planning_interval: int | None = None
    checks: list[str] = []
    """The checks that an answer must pass, all of them, before it counts: `when: <expression over answer, task,
    inputs and calls>`, or the name of a tool that takes `answer`, `task` and perhaps `calls`, and returns
    true."""
    input_schema: dict[str, Any] | None = None
    """JSON Schema of the object that a caller must pass as `inputs` to start a run."""
    output_schema: dict[str, Any] | None = None
    """The JSON Schema that an answer must fit before it counts."""
    provide_run_summary: bool = False
    """True if its reports to a manager contain a summary of its work as well."""
    prompts: str | None = None
    """The path of a prompt file that replaces the shipped one, or `short` for the short form of that."""
    labels: dict[str, str] = {}
    version: str = ""

    def __post_init__(self) -> None:
        for key, written in _WRITTEN_AS.items():
            if not isinstance(getattr(self, key), written):
                raise SpecError(f"write {key} as a {written.__name__}", agent=self.name)
        _take_types(self)
        for what, name in [
            ("agent", self.name),
            *(("tool", t) for t in self.tools),
            *(("team member", m) for m in self.team if isinstance(m, str)),
        ]:
            check_name(what, name)
        if not self.description.strip():
            raise SpecError("write a description: managers' models read it", agent=self.name)
        bounds = (
            ("limits.max_steps", self.limits.max_steps, 1),
            ("limits.depth", self.limits.depth, 0),
            ("limits.cycles", self.limits.cycles, 0),
            ("limits.observation_chars", self.limits.observation_chars, 1),
            ("limits.images", self.limits.images, 0),
            ("limits.parallel", self.limits.parallel, 1),
            ("limits.repeats", self.limits.repeats, 0),
            ("limits.calls", self.limits.calls, 1),
            ("limits.stored_mb", self.limits.stored_mb, 1),
            ("limits.seconds", self.limits.seconds, 0.001),
            ("limits.away", self.limits.away, 0),
            ("memory.recall", self.memory.recall, 0),
            ("memory.seconds", self.memory.seconds, 0.001),
            ("approval_seconds", self.approval_seconds, 1),
            ("planning_interval", self.planning_interval, 1),
            *((f"timeouts.{name}", seconds, 0.001) for name, seconds in self.timeouts.items()),
            *_budget_bounds(self.limits.budget),
            *model_bounds(self.model),
        )
        check_bounds(self.name, bounds)
        check_fallbacks(self.name, self.model)
        check_urls(f"agent {self.name}: model", self.model)
        check_api("model", self.model, agent=self.name)
        self._check_policies()
        for kind in declared_kinds().values():
            kind.check(self)
        self._check_memory()
        self._check_schemas()
        self._check_answers()
        for own in ("final_answer", PLAN_TOOLS):
            if own in (*self.tools, *self.team):
                raise SpecError(f"{own} is every agent's own; leave it out", agent=self.name)
        if self.name in self.team and self.limits.cycles < 1:
            raise SpecError("it is in its own team, which needs limits.cycles of at least 1", agent=self.name)
        choice = self.model.tool_choice
        if isinstance(choice, NamedFunction):
            self._check_choice(choice.function)
        both = {m for m in self.team if isinstance(m, str)} & set(self.tools)
        if both:
            raise SpecError(f"{', '.join(sorted(both))} is named as tool and as team member", agent=self.name)

    def section(self, of: type[S]) -> S | None:
        """Return the section of this type; None if it has none."""
        return next((part for part in self.sections if isinstance(part, of)), None)

    def _check_choice(self, function: str) -> None:
        if any(isinstance(member, Selector) for member in self.team):
            return
        known = ["final_answer", *self.tools, *map(str, self.team)]
        if function not in known:
            raise SpecError(f"model.tool_choice names {function!r}; it may name {', '.join(known)}", agent=self.name)

    def _check_memory(self) -> None:
        if self.memory.recall > MOST_RECALLED:
            raise SpecError(f"memory.recall must be at most {MOST_RECALLED}", agent=self.name)
        if self.memory.scope == "team" and not self.memory.team:
            raise SpecError("memory.scope team needs memory.team, the name of the team", agent=self.name)

    def _check_schemas(self) -> None:
        for key, schema in (("input_schema", self.input_schema), ("output_schema", self.output_schema)):
            if schema is None:
                continue
            try:
                check_schema(schema)
            except (TypeError, ValueError) as error:
                reason = str(error).splitlines()[0]
                raise SpecError(f"{key} is no JSON Schema: {reason}", agent=self.name) from error
        if self.input_schema is not None and self.input_schema.get("type") != "object":
            raise SpecError("input_schema says nothing of an object: write `type: object`", agent=self.name)

    def _check_answers(self) -> None:
        for check in self.checks:
            if not is_expression(check):
                check_name("check", check)
                continue
            try:
                unknown = names_in(check) - _JUDGED
            except ValueError as error:
                raise SpecError(str(error), key="checks", agent=self.name) from error
            if unknown:
                raise SpecError(
                    f"{check!r} is about {', '.join(sorted(unknown))}; it may be about {', '.join(sorted(_JUDGED))}",
                    key="checks",
                    agent=self.name,
                )
        if len(set(self.checks)) < len(self.checks):
            raise SpecError("checks names one check twice", agent=self.name)

    def _check_policies(self) -> None:
        try:
            check_policies(self.policies)
        except SpecError as error:
            error.of_agent(self.name)
            raise
        for name, policy in self.approvals.items():
            try:
                check_policy(policy)
            except ValueError as error:
                raise SpecError(str(error), key=f"approvals.{name}", agent=self.name) from error
        if any(isinstance(member, Selector) for member in self.team):
            return  # the agents that a selector finds are not known here
        for key, names in (("approvals", self.approvals), ("timeouts", self.timeouts)):
            known = {"*", *self.tools, *(str(member) for member in self.team)}
            unknown = set(names) - known - ({*self.checks} if key == "timeouts" else set())
            if unknown:
                raise SpecError(
                    f"{key} names {', '.join(sorted(unknown))}, which is neither in its tools nor in its team",
                    agent=self.name,
                )


def _take_types(spec: AgentSpec) -> None:
    """Give every field the type that a file's has, however deep: Python checks none when a struct is made.

    Raises SpecError, with the key as a file has it, for a value that a file could not have.
    """
    try:
        written = as_written(spec)
    except SpecError as error:
        error.of_agent(spec.name)
        raise
    given = unfolded(spec.name, written)
    try:
        read: Any = msgspec.convert(given, file_fields())
    except msgspec.ValidationError as error:
        misfit = misfit_of(error)
        key = misfit.place
        choices = f"; write {choices_of()[key]}" if key in choices_of() else ""
        raise SpecError(f"{misfit.lower}{choices}", key=key, agent=spec.name) from error
    fields = folded({name: getattr(read, name) for name in read.__struct_fields__})
    other = {name: value for name, value in fields.items() if getattr(spec, name) != value}
    if other:
        _check_keys(spec.name, given)
        for name, value in other.items():
            msgspec.structs.force_setattr(spec, name, value)


def _check_keys(agent: str, given: Any) -> None:
    """Raise SpecError for a key that no struct has, where a dict was given in the place of one."""
    for place, known in known_keys(file_fields()).items():
        for where, section in sections_at(given, place):
            if isinstance(section, dict) and (unknown := sorted(map(str, section.keys() - {*known}))):
                raise SpecError(f"unknown key {unknown[0]!r} in {where}; known keys: {', '.join(known)}", agent=agent)


def _budget_bounds(budget: Budget | None) -> list[tuple[str, float | None, float]]:
    if budget is None:
        return []
    return [
        ("limits.budget.tokens", budget.tokens, 1),
        ("limits.budget.cost", budget.cost, 0),
        ("limits.budget.steps", budget.steps, 1),
        ("limits.budget.depth", budget.depth, 0),
        ("limits.budget.calls", budget.calls, 0),
        ("limits.budget.stored_mb", budget.stored_mb, 0),
    ]


@once
def choices_of() -> "Mapping[str, str]":
    """Return the values of each key that takes only certain words, as errors list them."""
    return {
        "kind": "one of " + ", ".join(declared_kinds()),
        "permission": "open or restricted",
        "model.tool_choice": "auto, required or {function: NAME}",
        "model.api": "chat or responses",
        "model.calls": "native, schema, text or auto",
        "model.structured": "schema, object, prompt or auto",
        "model.token_limit": "max_tokens or max_completion_tokens",
        "model.reasoning_back": "never, received, required, signed or verbatim",
        "model.reasoning_effort": f"one of {', '.join(get_args(ReasoningEffort))}",
        "memory.remember": "nothing, answers or steps",
        "memory.scope": f"one of {', '.join(get_args(MemoryScope))}",
    }


_JUDGED = {"answer", "task", "inputs", "calls"}
"""The variables in the expression of a check."""

_WRITTEN_AS: dict[str, type] = {
    "sections": list,
    "model": ModelSpec,
    "limits": Limits,
    "memory": MemorySpec,
    "tools": list,
    "team": list,
    "labels": dict,
    "approvals": dict,
    "policies": list,
    "timeouts": dict,
    "checks": list,
}
"""Checked for agents made in Python, where tools="search" would be six tools."""


def _field(info: msgspec.structs.FieldInfo) -> Any:
    if info.required:
        return (info.name, info.type)
    factory, default = info.default_factory, info.default
    value = msgspec.field(default_factory=factory) if default is msgspec.NODEFAULT else default
    return (info.name, info.type, value)


@once
def _close_sections() -> None:
    globals()["AnySection"] = Union[tuple(section_types().values())]  # noqa: UP007 - made at run time


def fields_without(*names: str) -> list[Any]:
    """Return the fields of an agent's file but for these, to define a struct with: it checks their types and nothing
    else."""
    _close_sections()
    known = {info.name: _field(info) for info in msgspec.structs.fields(AgentSpec) if info.name != "sections"}
    known["kind"] = ("kind", Literal[tuple(declared_kinds())], DEFAULT)
    known |= {name: (name, section | UnsetType, UNSET) for name, section in section_types().items()}
    return [field for name, field in known.items() if name not in names]


@once
def file_fields() -> type[msgspec.Struct]:
    """Return the struct of an agent's fields as its file has them. The first call closes the union of the sections and
    reads every class of a specification: no agent is made and none is decoded before."""
    fields = msgspec.defstruct("AgentFields", fields_without(), kw_only=True)
    for read in (AgentSpec, fields):
        msgspec.json.Decoder(read)
    return fields


def decode_spec(data: bytes | str) -> AgentSpec:
    """Decode a specification from JSON. Raises SpecError and msgspec.DecodeError."""
    file_fields()
    return msgspec.json.decode(data, type=AgentSpec)


def spec_from(fields: dict[str, Any]) -> AgentSpec:
    """Return the specification of these fields, in JSON types. Raises SpecError and msgspec.ValidationError."""
    file_fields()
    return msgspec.convert(fields, AgentSpec)

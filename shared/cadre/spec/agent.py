"""What an agent is told to be: its model, tools, team and limits, checked when it is made."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from cadre.errors import SpecError
from cadre.protocol.code import CodeLimits
from cadre.protocol.messages import Budget, MemoryScope
from cadre.spec.answer_schema import check_schema
from cadre.spec.policy import check_policy, is_expression, names_in

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""A name is one token of a NATS subject and a function name for a model."""


MOST = 1e12
"""Of any number in a spec: no clock of the bus goes beyond it."""


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """Of a million tokens, in any currency: a deployment's prices and budgets share one."""

    input: float
    output: float


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which model an agent asks, and how. What is left out comes from the environment:
    `CADRE_MODEL_URL`, `CADRE_MODEL_KEY`, `CADRE_MODEL`."""

    name: str = ""
    url: str = ""
    key_env: str = "CADRE_MODEL_KEY"
    """Name of the environment variable that holds the key; the key itself is never in a spec."""
    temperature: float | None = None
    max_tokens: int | None = None
    context: int = 128_000
    """Tokens that one call may take in and give out together; a longer history is summarized."""
    tool_choice: Literal["auto", "required"] = "required"
    stop: bool = True
    """Send stop sequences; false for models that refuse the parameter (answers are cut here all the same)."""
    stream: bool = True
    vision: bool = True
    """Show the model the images that its tools return; false for a model that reads text only."""
    timeout: float = 120.0
    """Seconds without a byte from the endpoint."""
    retries: int = 10
    """Tries after a failure that is not a rate limit."""
    patience: float = 3600.0
    """Seconds that a run goes on waiting through rate limits before it gives up."""
    price: Price | None = None
    """What its tokens cost; None asks the price table (`CADRE_PRICES`)."""
    extra_body: dict[str, Any] = {}


class Selector(msgspec.Struct, frozen=True):
    """Every agent that has all these labels is a team member."""

    labels: dict[str, str]

    def __str__(self) -> str:
        return ",".join(f"{key}={value}" for key, value in sorted(self.labels.items()))


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Bounds of each run of the agent. A task may set narrower ones, never wider."""

    max_steps: int = 20
    depth: int = 8
    """Levels of delegation below the root run."""
    cycles: int = 0
    """How often an agent may appear again below itself."""
    observation_chars: int = 20_000
    """A longer observation is cut in the middle before the model reads it."""
    images: int = 4
    """Images that tools returned and that one request shows: the latest. Those of the task are not counted."""
    parallel: int = 32
    """Calls of one run that are sent at once; further ones wait their turn."""
    repeats: int = 5
    """How often the same call may give the same result before it is refused; 0: as often as the model likes.
    After as many refusals the run ends."""
    seconds: float | None = None
    """How long a run may take, waits included."""
    budget: Budget | None = None
    """What a run and all runs below it may use together."""


BASE_IMPORTS = [
    "collections",
    "datetime",
    "itertools",
    "math",
    "queue",
    "random",
    "re",
    "stat",
    "statistics",
    "time",
    "unicodedata",
]
"""What code may import when its agent says nothing else."""


INTERPRETER_TOOL = "python_interpreter"
"""The tool that the sandboxes of the default pool serve; that of another pool has `_<pool>` behind its name."""


class CodeSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How an agent of kind `code` writes and runs code."""

    imports: list[str] = []
    """Modules beside the base ones that its code may import: `pandas` means all below it too, `*` any."""
    tags: tuple[str, str] = ("<code>", "</code>")
    """What stands before and behind a block of code."""
    structured: bool = False
    """The model answers JSON `{thought, code}` under a schema instead of text with a block."""
    limits: CodeLimits = CodeLimits()
    pool: str = "default"
    """Which sandboxes run it (`cadre sandbox --pool`)."""


MOST_RECALLED = 100
"""Memories that one search gives."""


class MemorySpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an agent keeps beyond its runs, by the memory service (`cadre memory`)."""

    recall: int = 0
    """Memories put before the model when a run begins, the likeliest to help first; 0: none."""
    remember: Literal["nothing", "answers", "steps"] = "nothing"
    """What is kept of each run: its task and answer, or every finished step as well."""
    scope: MemoryScope = "agent"
    """Who shares what is kept. In a run without a session or person, those two mean the run's own tree."""
    reads: tuple[MemoryScope, ...] = ("run", "session", "agent", "team", "user")
    """Scopes that memories are recalled from, as far as the run has them."""
    team: str = ""
    """Name that the agents of a team share: needed for the scope `team`."""
    seconds: float = 10.0
    """How long a run waits for its memories before it begins without them."""


class AgentSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One agent. Built from YAML by `read_agent`, or in Python."""

    name: str
    description: str
    kind: Literal["tool_calling", "code"] = "tool_calling"
    model: ModelSpec = ModelSpec()
    instructions: str = ""
    tools: list[str] = []
    team: list[str | Selector] = []
    limits: Limits = Limits()
    code: CodeSpec = CodeSpec()
    """For kind `code`."""
    memory: MemorySpec = MemorySpec()
    permission: Literal["open", "restricted"] = "open"
    """`restricted`: a person must agree to every tool call whose tool or agent does not say otherwise."""
    approvals: dict[str, str] = {}
    """Whether a person must agree to a call, by tool or team member (`*`: any other): `never`, `always` or
    `when: <expression over the arguments>`. What stands here counts before what the tool says itself."""
    approval_seconds: float | None = None
    """How long a call waits for a person before it counts as rejected; None: for ever."""
    timeouts: dict[str, float] = {}
    """Seconds that a call may take from being sent to its answer, by tool or team member."""
    planning_interval: int | None = None
    checks: list[str] = []
    """What an answer must pass before it counts: `when: <expression over answer, task and additional_args>`, or the
    name of a tool that takes `answer` and `task` and returns true. All of them must be passed."""
    output_schema: dict[str, Any] | None = None
    """JSON Schema that an answer must fit before it counts."""
    provide_run_summary: bool = False
    """A manager that this agent reports to reads a summary of its work as well."""
    prompts: str | None = None
    """Path of a prompt file that replaces the shipped one."""
    labels: dict[str, str] = {}
    version: str = ""

    def __post_init__(self) -> None:
        for key, kind in _WRITTEN_AS.items():
            if not isinstance(getattr(self, key), kind):
                raise SpecError(f"agent {self.name}: write {key} as a {kind.__name__}")
        for what, name in [
            ("agent", self.name),
            *(("tool", t) for t in self.tools),
            *(("team member", m) for m in self.team if isinstance(m, str)),
        ]:
            check_name(what, name)
        if not self.description.strip():
            raise SpecError(f"agent {self.name}: write a description: managers' models read it")
        for key, value, least in (
            ("limits.max_steps", self.limits.max_steps, 1),
            ("limits.depth", self.limits.depth, 0),
            ("limits.cycles", self.limits.cycles, 0),
            ("limits.observation_chars", self.limits.observation_chars, 1),
            ("limits.images", self.limits.images, 0),
            ("model.timeout", self.model.timeout, 0.001),
            ("model.context", self.model.context, 1_000),
            ("model.max_tokens", self.model.max_tokens, 1),
            ("model.retries", self.model.retries, 0),
            ("model.patience", self.model.patience, 0),
            ("limits.parallel", self.limits.parallel, 1),
            ("limits.repeats", self.limits.repeats, 0),
            ("limits.seconds", self.limits.seconds, 0.001),
            ("memory.recall", self.memory.recall, 0),
            ("memory.seconds", self.memory.seconds, 0.001),
            ("approval_seconds", self.approval_seconds, 1),
            ("planning_interval", self.planning_interval, 1),
            *((f"timeouts.{name}", seconds, 0.001) for name, seconds in self.timeouts.items()),
            *_budget_bounds(self.limits.budget),
            *_price_bounds(self.model.price),
            ("code.limits.seconds", self.code.limits.seconds, 0.1),
            ("code.limits.memory_mb", self.code.limits.memory_mb, 16),
            ("code.limits.print_chars", self.code.limits.print_chars, 1),
            ("code.limits.output_chars", self.code.limits.output_chars, 1),
        ):
            if value is not None and not least <= value <= MOST:
                bound = f"at most {MOST:g}" if value > MOST else f"at least {least:g}"
                raise SpecError(f"agent {self.name}: {key} must be {bound}")
        self._check_policies()
        self._check_code()
        self._check_memory()
        self._check_answers()
        if "final_answer" in (*self.tools, *self.team):
            raise SpecError(f"agent {self.name}: final_answer is every agent's own; leave it out")
        if self.name in self.team and self.limits.cycles < 1:
            raise SpecError(
                f"agent {self.name}: it is in its own team, which needs limits.cycles of at least 1"
            )
        both = {m for m in self.team if isinstance(m, str)} & set(self.tools)
        if both:
            raise SpecError(
                f"agent {self.name}: {', '.join(sorted(both))} is named as tool and as team member"
            )

    def _check_memory(self) -> None:
        if self.memory.recall > MOST_RECALLED:
            raise SpecError(f"agent {self.name}: memory.recall must be at most {MOST_RECALLED}")
        if self.memory.scope == "team" and not self.memory.team:
            raise SpecError(f"agent {self.name}: memory.scope team needs memory.team, the name of the team")

    def _check_code(self) -> None:
        tags = self.code.tags
        if len(tags) != 2 or not all(tag.strip() for tag in tags):
            raise SpecError(f"agent {self.name}: code.tags must be two texts, as in ['<code>', '</code>']")
        check_name("sandbox pool", self.code.pool)
        reserved = {"final_answer", "print"} & {*self.tools, *(str(member) for member in self.team)}
        if self.kind == "code" and reserved:
            raise SpecError(f"agent {self.name}: {min(reserved)} is a function of its code already")

    def _check_answers(self) -> None:
        if self.output_schema is not None:
            try:
                check_schema(self.output_schema)
            except (TypeError, ValueError) as error:
                reason = str(error).splitlines()[0]
                raise SpecError(f"agent {self.name}: output_schema is no JSON Schema: {reason}") from error
        for check in self.checks:
            if not is_expression(check):
                check_name("check", check)
                continue
            try:
                unknown = names_in(check) - _JUDGED
            except ValueError as error:
                raise SpecError(f"agent {self.name}: checks: {error}") from error
            if unknown:
                raise SpecError(
                    f"agent {self.name}: checks: {check!r} is about {', '.join(sorted(unknown))};"
                    f" it may be about {', '.join(sorted(_JUDGED))}"
                )
        if len(set(self.checks)) < len(self.checks):
            raise SpecError(f"agent {self.name}: checks names one check twice")

    def _check_policies(self) -> None:
        for name, policy in self.approvals.items():
            try:
                check_policy(policy)
            except ValueError as error:
                raise SpecError(f"agent {self.name}: approvals.{name}: {error}") from error
        if any(isinstance(member, Selector) for member in self.team):
            return  # whom a selector finds is not known here
        for key, names in (("approvals", self.approvals), ("timeouts", self.timeouts)):
            known = {"*", *self.tools, *(str(member) for member in self.team)}
            unknown = set(names) - known - ({*self.checks} if key == "timeouts" else set())
            if unknown:
                raise SpecError(
                    f"agent {self.name}: {key} names {', '.join(sorted(unknown))},"
                    " which is neither in its tools nor in its team"
                )


def _price_bounds(price: Price | None) -> list[tuple[str, float | None, float]]:
    if price is None:
        return []
    return [("model.price.input", price.input, 0), ("model.price.output", price.output, 0)]


def _budget_bounds(budget: Budget | None) -> list[tuple[str, float | None, float]]:
    if budget is None:
        return []
    return [
        ("limits.budget.tokens", budget.tokens, 1),
        ("limits.budget.cost", budget.cost, 0),
        ("limits.budget.steps", budget.steps, 1),
        ("limits.budget.depth", budget.depth, 0),
    ]


_JUDGED = {"answer", "task", "additional_args"}
"""What the expression of a check may be about."""

_WRITTEN_AS = {
    "model": ModelSpec,
    "limits": Limits,
    "code": CodeSpec,
    "memory": MemorySpec,
    "tools": list,
    "team": list,
    "labels": dict,
    "approvals": dict,
    "timeouts": dict,
    "checks": list,
}
"""In Python nobody else looks: tools="search" would be six tools."""


def check_name(what: str, name: str) -> None:
    """Raises SpecError unless `name` can be a subject token and a function name."""
    if not NAME.fullmatch(name):
        raise SpecError(
            f"{what} name {name!r}: use 1 to 64 of the letters a-z, A-Z, digits, '_' and '-'"
            " (it becomes part of NATS subjects)"
        )

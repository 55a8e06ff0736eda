"""Policies: rules about calls, as specifications hold them and as a manager hands them to its team."""

import hashlib
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from cadre.protocol.cards import CallMeaning
from cadre.protocol.usage import Seconds

ValueOrigin = Literal["task", "listed", "trusted", "sole", "field", "named", "text", "nowhere"]
"""The place where a value first stood, the most trustworthy first.

`task`: a person wrote it; `listed`: a policy's `known` has it; `trusted`: a field that a tool vouches for; `sole`: the
only address of its sort in a text from a source that the task names; `field`: a whole field of a result; `named`: a
text from a source that the task names; `text`: any other text that was read; `nowhere`: the model made it up.
"""

PLAN_TOOLS = "plan_tools"
"""The name of the function by which a model says which tools it is going to use."""


class PolicyRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rule about calls. Exactly one of `hold` and `deny` is a condition."""

    name: str = ""
    """The name that reasons give it; by default the policy's name and its number, `careful.2`."""
    calls: list[str]
    """Kinds of calls (`pay`, `effects`, `undeclared`, `delegate`), tools and team members; `*` stands for any
    characters."""
    hold: str = ""
    """The condition under which a person must agree."""
    deny: str = ""
    """The condition under which the call is refused."""
    because: str = ""
    """The reason, for the model and for people."""
    by: list[str] = []
    """Names of keys, and roles, that may decide on a call that it holds; []: everybody who may decide."""
    within: Seconds | None = None
    """Seconds that a call which it holds waits before it counts as turned down; None: as the agent says."""


class Policy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rules about the calls of an agent, and what they take for known."""

    name: str
    mode: Literal["enforce", "watch"] = "enforce"
    """`watch`: verdicts are journaled and not carried out."""
    rules: list[PolicyRule] = []
    known: list[Any] = []
    """Values that count as known, regardless of their source."""
    trusted: dict[str, list[str]] = {}
    """By tool or team member (`*` stands for any characters), the fields of its results that no stranger chooses; `all`
    for whole results."""
    tools: dict[str, CallMeaning] = {}
    """The effects of tools (`*` stands for any characters), in place of what they declare themselves."""
    instead: dict[str, PolicyRule | None] = {}
    """Rules of the agent's other policies, by name, that others replace; None: nothing does."""


class PassedValue(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value in a member's task whose origin its manager knows."""

    value: str
    """The value, normalized."""
    origin: ValueOrigin
    place: str = ""
    """Its place in the manager's run: `get_contacts[3].email`."""


class Standing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The knowledge that a run has from the run that began it, or from a gateway, for its policies."""

    source: str = ""
    """The source of the task and its inputs if people did not write all of them, `trigger orders`: of these only
    `asked` is theirs. "": a run or a person wrote them."""

    policies: list[list[Policy]] = []
    """The policies of the agents above, each agent's own together: they rule the calls of this run as well."""
    asked: list[str] = []
    """The texts that people wrote to the runs above, or of the task."""
    values: list[PassedValue] = []
    plan: list[str] | None = None
    """The tools that this run may count as planned; None: it makes a plan itself."""
    has_read: bool = False
    """True if the author of its task has read what strangers may have written."""


Span = Literal["run", "tree", "user_day"]
"""The range over which calls are counted: those of one run, of all runs of its tree, of one user since midnight UTC."""


class TalliedCalls(msgspec.Struct, frozen=True, omit_defaults=True):
    """Calls of one tool that count for rules."""

    tool: str
    does: str = ""
    count: int = 0
    amount: float = 0.0
    """The sum of their amounts."""


class TallyLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """The calls of one run in a tally."""

    n: int
    """The entry of the run's journal by which they are counted."""
    calls: list[TalliedCalls] = []
    ended: bool = False


class Tally(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="tally"):
    """Calls of several runs that count together: a run writes its own line before it makes a call, and no other."""

    v: Literal[1] = 1
    lines: dict[str, TallyLine] = {}
    """By run."""
    rest: list[TalliedCalls] = []
    """The calls of runs that have ended, once there are many."""


def digest_of(policies: Sequence[Sequence[Policy]]) -> str:
    """Return the SHA-256 of policies, as hex digits."""
    return hashlib.sha256(msgspec.json.encode(policies, order="deterministic")).hexdigest()

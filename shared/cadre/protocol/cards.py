"""Cards: how tools, agents and sandboxes describe themselves in the registry."""

from typing import Any, Literal

import msgspec

from cadre.versions import VersionOrder, version_order

Does = Literal["read", "visit", "send", "publish", "pay", "admit", "share", "delete", "change", "book", "write"]
"""The kinds of calls: `read` looks something up, `visit` fetches an address, all others have an effect."""

EFFECTS: tuple[Does, ...] = (*("send", "publish", "pay", "admit", "share", "delete", "change", "book", "write"),)
"""The kinds of calls that have an effect."""

WITH_DESTINATION: tuple[Does, ...] = ("visit", "send", "pay", "admit", "share")
"""Kinds of calls with a person or thing as their destination: their tools say which arguments name it."""

ALL_FIELDS = "all"
"""In the list of vouched fields: the whole result."""


class CallMeaning(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The meaning of a tool's call for the rules of policies."""

    does: Does | None = None
    """None: a tool that is read-only reads; any other one may do anything."""
    to: list[str] = []
    """The arguments that say whom the call concerns or where it goes: addresses, accounts, people."""
    what: list[str] = []
    """The arguments that say what the call is about: a file, an order, a record."""
    text: list[str] = []
    """The arguments that hold content."""
    amount: str = ""
    """The argument that is a sum of money, or another number that adds up."""
    private: bool = False
    """Its results are private."""
    trusted: list[str] = []
    """The fields of its result that no stranger chooses, as paths from the result without the places in lists
    (`recipient`, `customer.email`); `all` for the whole result."""


class ToolCard(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool as its executor registers it and as a model is offered it."""

    name: str
    description: str
    input_schema: dict[str, Any]
    """JSON Schema (2020-12) of an object."""
    output_schema: dict[str, Any] | None = None
    read_only: bool = False
    """The tool changes nothing, so that a call runs without a claim and may run again after a crash."""
    idempotent: bool = False
    """Two runs with one call id have the effect of one."""
    timeout: float | None = None
    """Seconds that one call may take."""
    approval: str = ""
    """The approval that a call needs: `never`, `always` or `when: <expression over the arguments>`; empty leaves it to
    the agent."""
    approval_text: str = ""
    """The sentence by which a person is asked for approval, with parameters in braces: `Refund {amount} €`; empty: the
    name and the arguments."""
    serial: bool = False
    """A run sends its calls of serial tools one after another, in the order in which its model asks for them."""
    action: CallMeaning = CallMeaning()
    """The meaning of a call for the rules of policies."""
    labels: dict[str, str] = {}
    version: str = ""

    @property
    def does(self) -> Does | None:
        """Return the kind of its calls; None where it says nothing and may do anything."""
        return self.action.does or ("read" if self.read_only else None)

    @property
    def decisive(self) -> "ToolCard":
        """The card without what neither a model reads nor an agent decides by."""
        return msgspec.structs.replace(self, labels={}, version="")


class AgentCard(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent as its service registers it and as a manager's model is offered it."""

    name: str
    description: str
    kind: str = "tool_calling"
    labels: dict[str, str] = {}
    version: str = ""
    tools: list[str] = []
    team: list[str] = []
    """Names, or label selectors written `key=value,…`."""
    input_schema: dict[str, Any] | None = None
    """JSON Schema of the object that a task must bring as `inputs`; None: any."""
    output_schema: dict[str, Any] | None = None
    """JSON Schema that its answers fit; None: any."""
    policies: list[str] = []
    """Names of the policies that rule its calls."""
    prompt_tokens: int = 0
    """Tokens that the first request of each of its runs takes at the very least, without its task and its tools; 0 when
    that is not known."""


TIERS = ("ns", "landlock")
"""The levels of isolation that sandboxes give code, the best first; docs/code-agents.md explains them."""


class SandboxCard(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A sandbox as its service registers it: the pool whose code it runs, and how well it isolates that."""

    pool: str
    tier: str
    """`ns` or `landlock`."""
    python: str = ""
    """The version of the Python that runs the code."""
    sessions: int = 0
    """The number of interpreters that it runs at once."""
    version: str = ""


AT_REST = "at-rest"
"""Stands for the instance of an agent that may have no replica, as it is started by what waits for it."""

RETIRED = "retired"
"""Stands for the instance in the key that takes an agent, tool or pool out of the deployment: replicas that started
before it are not known any more once they are gone."""


class Presence(msgspec.Struct, frozen=True, kw_only=True):
    """One replica: the value of a registry key that the replica renews while it lives. The key stays for days after it.

    With the instance `AT_REST` it is an agent's card that does not expire, so that tasks reach the agent before its
    first start. With `RETIRED` it has no card, and says since when nothing of earlier replicas is kept."""

    v: Literal[1] = 1
    revision: str = ""
    """Of an agent: 12 hex digits over its spec and its prompts. Replicas of one version should have one revision."""
    prompts: str = ""
    """Of an agent: `blob:` reference of its prompts, which stay for as long as the replica lives."""
    spec: str = ""
    """Of an agent: `blob:` reference of its specification, kept for as long as the prompts."""
    beside: str = ""
    """Of an agent: the name of its revision's objects if they are separate from those of the first."""
    priced_models: list[str] = []
    """Of an agent: names of the models that it may ask, as far as it knows their price."""
    instance: str
    host: str
    pid: int
    health: str = ""
    """The base URL of the replica's /healthz and /readyz."""
    started_at: float
    index: str = ""
    """Of the memory service: the id of its index. Later indexes have higher ones."""
    shards: int = 0
    """Number of shards that it takes from; 0 where that is not known."""
    skew: float = 0.0
    """Seconds that its machine's clock is ahead of the NATS server's."""
    away_since: float = 0.0
    """Time at which it stopped, or was heard for the last time, in Unix seconds; 0 while it lives."""
    agent: AgentCard | None = None
    tool: ToolCard | None = None
    sandbox: SandboxCard | None = None

    @property
    def is_at_rest(self) -> bool:
        return self.instance == AT_REST

    @property
    def is_live(self) -> bool:
        """Return whether it stands for a process."""
        return not self.is_at_rest and not self.away_since


def presence_order(presence: Presence) -> tuple[VersionOrder, float]:
    """Return a key that sorts the replicas of one agent or tool: the last has the card that counts.

    It has the highest version, and among those it was started last.
    """
    card = presence.agent or presence.tool or presence.sandbox
    return version_order(card.version if card is not None else ""), presence.started_at

"""Define what can arrive at a run: the records of its inbox, and the outcome of its own model call."""

from typing import TYPE_CHECKING, Any

import msgspec

from cadre.journal.events import RequestedCall
from cadre.journal.run import Step
from cadre.protocol.cards import AgentCard, ToolCard
from cadre.protocol.messages import Task
from cadre.protocol.policy import Span, TalliedCalls
from cadre.protocol.usage import Usage
from cadre.spec.agent import AgentSpec

if TYPE_CHECKING:
    from cadre.protocol.messages import Message

    AnyRecord = Message  # at run time, `unions.close` sets it


class Toolset(msgspec.Struct, frozen=True):
    """Tools and team members by name, in a stable order."""

    tools: dict[str, ToolCard] = {}
    members: dict[str, AgentCard] = {}
    missing: list[str] = []
    """Named by the spec, offered by no live service."""
    checks_with_calls: list[str] = []
    """Tools that check answers and take the calls of the run as well."""
    with_files: "Toolset | None" = None
    """The tool set that holds instead in a run that began with files; None: the same."""


class ModelReplied(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to the model call `attempt` of the run."""

    attempt: int
    content: str
    calls: list[RequestedCall] = []
    usage: Usage = Usage()
    model: str = ""
    finish_reason: str = ""
    seconds: float = 0.0
    unpriced: bool = False
    """True if the price of this model is unknown."""
    items: list[dict[str, Any]] = []
    """The endpoint's other items, besides the text and the calls: reasoning, what its own tools did, citations."""
    cached_tokens: int = 0
    """Of the input tokens, those that the endpoint had cached."""
    reasoning_tokens: int = 0
    """Of the output tokens, those of reasoning."""
    response: str = ""
    """The id of the answer, where the endpoint gives one."""
    first_seconds: float | None = None
    """Seconds until the first piece of the answer came, where that is known."""
    server: str = ""
    """Host and port of the endpoint, as `host:port`."""
    worker: str = ""
    """The replica that made the call."""
    context: int | None = None
    """Tokens that the endpoint takes, in and out together, if it reports them and the agent's spec does not."""
    endpoint: str = ""
    """The id of the endpoint and its model, to which `items` and `learned` belong; "" without either."""
    learned: dict[str, Any] = {}
    """Keys of its profile (`cadre.spec.model.Profile`) that refusals have taught."""
    raw: dict[str, Any] | None = None
    """The whole answer as the endpoint gave it, where a program asked."""


class ModelFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The model call `attempt` got no answer."""

    attempt: int
    message: str
    status: int | None = None
    retry_after: float | None = None
    """Seconds that the endpoint asked for."""
    rate_limited: bool = False
    final: bool = False
    """The request itself was refused: trying again cannot help."""
    too_long: bool = False
    """It was refused for taking more than the model's context: a shorter one can help."""
    about_form: bool = False
    """It was refused for the form in which JSON was asked for: another form can help."""
    context: int | None = None
    """Tokens that the endpoint takes, where its refusal says so."""
    tokens: int | None = None
    """Tokens of the request as the endpoint counts them, where its refusal says so."""


class ModelLost(msgspec.Struct, frozen=True, kw_only=True):
    """The worker of the model call in flight is gone: its record was delivered again."""

    attempt: int


class Poisoned(msgspec.Struct, frozen=True, kw_only=True):
    """A record that no worker could handle, delivery after delivery."""

    id: str
    deliveries: int
    why: str = ""
    task: Task | None = None
    """The record itself, when it is the task that begins the run."""


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a decision may know besides the run itself."""

    what: "AnyRecord | ModelReplied | ModelFailed | ModelLost | Poisoned"
    at: float
    """Unix seconds."""
    cause: str
    """Id of the inbox record in hand, to which a model call begun now belongs."""
    toolset: Toolset
    spec: AgentSpec
    """The service's spec: taken over by a run that begins now."""
    history: list[Step] = []
    """Steps of the run that the task continues."""
    prefix: list[Step] = []
    """Steps of the run that the task forks."""
    problem: str = ""
    """The reason why the task cannot begin."""
    decided_by: str = ""
    """Name of the kind that decides it, for a run that is decided again; "": as the spec says."""
    kind_version: int = 0
    """The version of that kind; 0: that of today."""
    revision: str = ""
    """Of the service's spec and prompts: taken over by a run that begins now."""
    prompts: str = ""
    """`blob:` reference of the service's prompts: taken over in the same way."""
    others: dict[Span, list[TalliedCalls]] = {}
    """Calls of other runs that rules count, by what they are counted over."""
    sums: dict[str, float] = {}
    """Figures of such calls that an earlier decision has journaled: they count in place of `others`."""
    base: int = 0
    """Tokens of a request besides the steps, when nothing is offered."""
    base_with_toolset: int = 0
    """The same with the toolset in hand."""

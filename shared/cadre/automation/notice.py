"""Define a notice as people write it, and an address at which the caller of a task wants to hear of it; the events
and signed webhooks that follow from both (Standard Webhooks: HMAC-SHA256 over id, time and body)."""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec

from cadre.automation.trigger import check_variable
from cadre.errors import SpecError
from cadre.journal.entry import Entry
from cadre.journal.events import ApprovalRequested, RunFinished
from cadre.journal.run import Run
from cadre.protocol.access import NO_MAKER, Maker
from cadre.spec.names import check_name

Happening = Literal[
    "run.finished",
    "approval.requested",
    "budget.warning",
    "budget.standing_warning",
    "budget.standing_exhausted",
]

BUDGET_SHARE = 0.8
"""Of a budget of which this share is used there is something to tell."""

RETRY_SECONDS = (5.0, 30.0, 120.0, 600.0, 1800.0, 7200.0, 21_600.0, 43_200.0)
"""Pauses before what could not be delivered is tried again, the last one again and again."""

_MAX_OUTPUT_CHARS = 10_000
_CLOUD_EVENTS = "1.0"


class NoticeSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A checked notice. Raises SpecError."""

    name: str
    url: str
    """The URL for webhooks: https, or http if the gateway's settings allow its address."""
    secret_env: str
    """The environment variable of the gateways that holds the secret, `whsec_…`: `CADRE_SECRET_` and a name."""
    events: list[Happening] = []
    """Only these; all when empty."""
    agents: list[str] = []
    """Only runs of these agents; all when empty."""
    states: list[str] = []
    """Only runs that ended so (`success`, `error`, …); all when empty."""
    attempts: Annotated[int, msgspec.Meta(ge=1, le=100)] = 9
    """Tries of one delivery; then it is a dead letter."""
    paused: bool = False
    """True while nothing that happens is sent."""

    def __post_init__(self) -> None:
        check_name("notice", self.name, "name")
        check_variable("secret_env", self.secret_env)
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise SpecError(f"{self.url!r}: write https://HOST/PATH, without a user", key="url")

    def tells_of(self, what: Happening) -> bool:
        """Return whether the notice covers events of this kind."""
        return not self.events or what in self.events

    def wants(self, happened: "Happened", agent: str) -> bool:
        """Return whether the notice covers this event of the agent's run."""
        if not self.tells_of(happened.type) or (self.agents and agent not in self.agents):
            return False
        return happened.type != "run.finished" or not self.states or happened.data["state"] in self.states


class NoticeState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A notice as it is kept."""

    spec: NoticeSpec
    maker: Maker = NO_MAKER
    """Its last writer: it is sent as long as the writer may have it."""


class Happened(NamedTuple):
    """One thing to tell of; `id` is the same whenever it is derived again."""

    id: str
    type: Happening
    run: str
    at: float
    data: dict[str, Any]


class NoticeDelivery(msgspec.Struct, kw_only=True):
    """One webhook on its way."""

    notice: str
    id: str
    type: str
    run: str
    at: float
    data: dict[str, Any]
    attempt: int = 1
    """The number of the next attempt."""


def happened_in(entry: Entry) -> Iterator[Happened]:
    """Yield the happenings that follow from an entry alone: the end of a root run, calls that wait for a person."""
    for event in entry.events:
        match event:
            case RunFinished() if entry.parent is None:
                output = event.output
                if isinstance(output, str):
                    output = output[:_MAX_OUTPUT_CHARS]
                elif len(msgspec.json.encode(output)) > _MAX_OUTPUT_CHARS:
                    output = None
                data = {
                    "run": entry.run,
                    "agent": entry.agent,
                    "state": event.state,
                    "output": output,
                    "error": msgspec.to_builtins(event.error),
                    "steps": event.steps,
                    "usage": msgspec.to_builtins(event.usage),
                }
                yield Happened(f"{entry.run}:finished", "run.finished", entry.run, entry.at, data)
            case ApprovalRequested() if event.kind != "function":
                data = {
                    "run": entry.run,
                    "agent": entry.agent,
                    "call": event.call,
                    "name": event.name,
                    # Of the arguments it holds those that the tool's own sentence names, and no others.
                    "headline": event.reason if event.kind == "question" else event.text or event.name,
                    "reason": event.reason,
                    "expires_at": event.expires_at,
                }
                yield Happened(f"{event.call}:approval", "approval.requested", entry.run, entry.at, data)


def budget_warning(before: Run, after: Run, entry: Entry) -> Happened | None:
    """Return the event to report when the entry takes a root run over 80 % of its budget."""
    if entry.parent is not None or budget_share(before) >= BUDGET_SHARE or budget_share(after) < BUDGET_SHARE:
        return None
    data = {
        "run": entry.run,
        "agent": entry.agent,
        "share": round(budget_share(after), 3),
        "budget": msgspec.to_builtins(after.budget),
        "usage": msgspec.to_builtins(after.usage),
    }
    return Happened(f"{entry.run}:budget", "budget.warning", entry.run, entry.at, data)


def budget_share(run: Run) -> float:
    """Return the greatest used share of what the run's budget bounds; 0 without one."""
    if run.budget is None:
        return 0.0
    used = (
        (run.budget.tokens, run.usage.total_tokens),
        (run.budget.cost, run.usage.cost),
        (run.budget.steps, run.usage.steps),
    )
    return max((spent / bound for bound, spent in used if bound), default=0.0)


def cloud_event(delivery: NoticeDelivery, source: str) -> bytes:
    """Return the body of a webhook: a CloudEvent in JSON."""
    return msgspec.json.encode(
        {
            "specversion": _CLOUD_EVENTS,
            "id": delivery.id,
            "source": source,
            "type": f"dev.cadre.{delivery.type}",
            "subject": delivery.run,
            "time": datetime.fromtimestamp(delivery.at, UTC).isoformat().replace("+00:00", "Z"),
            "datacontenttype": "application/json",
            "data": delivery.data,
        }
    )


PUSHES = "push"
"""The kind of the definitions in which the addresses are kept."""

PUSH = "task.push"
"""The type of the deliveries to such an address."""

MAX_PUSHES = 8
"""Addresses that one task has."""

ATTEMPTS = 9
"""Tries of one delivery; then it is a dead letter."""

_HEADER = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_SCHEME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class PushTarget(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A checked address. Raises SpecError."""

    id: str
    url: str
    token: str = ""
    """A token that is sent along, so that the receiver can verify the sender."""
    scheme: str = ""
    """Of the header Authorization, such as `Bearer`; "" sends none."""
    credentials: str = ""
    maker: Maker = NO_MAKER
    """The maker who gave the address: messages are sent to it as long as they have a key."""

    def __post_init__(self) -> None:
        check_name("push notification", self.id)
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise SpecError(f"{self.url!r}: write https://HOST/PATH, without a user", key="url")
        if self.scheme and not _SCHEME.fullmatch(self.scheme):
            raise SpecError("write the word of an HTTP scheme, such as Bearer", key="authentication.scheme")
        for key, text in (("token", self.token), ("authentication.credentials", self.credentials)):
            if text and not _HEADER.fullmatch(text):
                raise SpecError("it goes into a header: write ASCII without line breaks", key=key)

    def headers(self) -> dict[str, str]:
        """Return the headers that identify the sender to the receiver."""
        found = {"X-A2A-Notification-Token": self.token} if self.token else {}
        if self.scheme:
            found["Authorization"] = f"{self.scheme} {self.credentials}".strip()
        return found


class TaskPushes(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses of one task, a root run."""

    run: str
    targets: list[PushTarget]

    def target(self, name: str) -> PushTarget | None:
        """Return the address of that id."""
        return next((one for one in self.targets if one.id == name), None)

    def without(self, name: str) -> "TaskPushes":
        """Return the others."""
        return TaskPushes(run=self.run, targets=[one for one in self.targets if one.id != name])


_PREFIX = "whsec_"
_VERSION = "v1"

TOLERANCE_SECONDS = 300.0
"""A signed time may be so far from the present, either way."""


class SignatureInvalid(Exception):
    """The message is not signed as it must be; the text says what is wrong."""


def secret_bytes(secret: str) -> bytes:
    """Return the key in a secret `whsec_<base64>`; any other text is the key itself. Raises ValueError for an empty
    one."""
    secret = secret.strip()
    if not secret.removeprefix(_PREFIX):
        raise ValueError("the secret is empty")
    if not secret.startswith(_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except binascii.Error as error:
        raise ValueError("the secret is no base64 behind whsec_") from error


def signature(secret: str, message: str, timestamp: int, body: bytes) -> str:
    """Return the value of the header `webhook-signature` of this message id, Unix time and body."""
    signed = b".".join([message.encode(), str(timestamp).encode(), body])
    digest = hmac.new(secret_bytes(secret), signed, hashlib.sha256).digest()
    return f"{_VERSION},{base64.b64encode(digest).decode()}"


def verify(  # noqa: PLR0913 - what a signature is over
    secret: str,
    message: str,
    timestamp: str,
    signatures: str,
    body: bytes,
    *,
    now: float,
    tolerance: float = TOLERANCE_SECONDS,
) -> None:
    """Check the three headers of a message: one of its signatures must be right. Raises SignatureInvalid."""
    if not message or not timestamp or not signatures:
        raise SignatureInvalid("send the headers webhook-id, webhook-timestamp and webhook-signature")
    if not timestamp.isdecimal() or len(timestamp) > 15:
        raise SignatureInvalid("webhook-timestamp: write Unix seconds")
    if abs(now - int(timestamp)) > tolerance:
        raise SignatureInvalid(f"webhook-timestamp: is over {tolerance:g} s from this gateway's clock")
    expected = signature(secret, message, int(timestamp), body).encode()
    given = signatures.encode("utf-8", "replace").split()
    if not any(hmac.compare_digest(one, expected) for one in given):
        raise SignatureInvalid("webhook-signature: none is right for this id, time and body")

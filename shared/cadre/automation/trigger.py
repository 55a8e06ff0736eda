"""A trigger as people write it: whose run starts when a message or a signed webhook arrives."""

import re
from typing import Any

import msgspec

from cadre.automation.schedule import check_options, check_template, labelled, literal_text, render
from cadre.automation.schedule_state import OwedStart
from cadre.errors import SpecError
from cadre.protocol.access import NO_MAKER, Maker
from cadre.protocol.policy import Standing
from cadre.protocol.topology import run_id_of
from cadre.spec.durations import Length, checked_seconds
from cadre.spec.names import check_name

_PATTERN = re.compile(r"[^\s.*>]+(\.[^\s.*>]+)*")
SECRET_PREFIX = "CADRE_SECRET_"
"""The prefix of variables that definitions may name: otherwise their authors could use any variable as a secret."""

_VARIABLE = re.compile(SECRET_PREFIX + r"[A-Za-z0-9_]{1,100}")


class WebhookSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The signature of a trigger's webhooks."""

    secret_env: str
    """The environment variable of the gateways that holds the secret, `whsec_…`: `CADRE_SECRET_` and a name."""
    tolerance: Length = 300
    """A signed time may be so far from the gateway's."""


class TriggerSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A checked trigger. Raises SpecError."""

    name: str
    agent: str
    task: str
    """Template of the task; it may use `payload` (JSON, else text), `id`, `trigger` and, of a message, `subject`."""
    subject: str | None = None
    """The subject behind `cadre.event.` whose messages start runs; `*` and `>` as in NATS."""
    webhook: WebhookSpec | None = None
    plan: list[str] = []
    """Tools that its runs count as planned, where policies ask for a plan."""
    options: dict[str, Any] = {}
    """Other keys of the request for a run, as in `POST /v1/runs`."""
    paused: bool = False
    """True while no message and no webhook starts a run."""

    def __post_init__(self) -> None:
        check_name("trigger", self.name, "name")
        check_name("agent", self.agent, "agent")
        check_template("task", self.task)
        check_options(self.options)
        if self.subject is None and self.webhook is None:
            raise SpecError("write one of them, or both", key="subject, webhook")
        if self.subject is not None and not _is_pattern(self.subject):
            raise SpecError(
                f"{self.subject!r} is no subject: write orders.created, orders.* or orders.>", key="subject"
            )
        if self.webhook is not None:
            check_variable("webhook.secret_env", self.webhook.secret_env)
            checked_seconds("webhook.tolerance", self.webhook.tolerance, 1.0)

    @property
    def start_options(self) -> dict[str, Any]:
        """Return the options of its runs, which have its name as the label `trigger`."""
        return labelled(self.options, "trigger", self.name)

    def listens_to(self, subject: str) -> bool:
        """Return whether a message on the subject (behind `cadre.event.`) starts a run."""
        return not self.paused and self.subject is not None and _matches(self.subject.split("."), subject.split("."))

    def task_for(self, payload: bytes, message: str, subject: str = "") -> str:
        """Return the task for a message of this id. Raises SpecError when it cannot be rendered."""
        values = {"payload": _payload(payload), "id": message, "trigger": self.name, "subject": subject}
        return render("task", self.task, values)

    @property
    def standing(self) -> Standing | None:
        """Return what policies take from the trigger: its own text is its maker's word, the message is not. None if no
        part of the message is in its tasks."""
        written = literal_text(self.task, ("trigger",))
        if written is None:
            return None
        inputs = self.options.get("inputs")
        own = [written, *([msgspec.json.encode(inputs).decode()] if inputs else [])]
        return Standing(source=f"trigger {self.name}", asked=own, plan=self.plan, has_read=True)


class TriggerState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A trigger with what is remembered of it."""

    spec: TriggerSpec
    maker: Maker = NO_MAKER
    """Its last writer: its runs start with the writer's rights."""
    salt: str = ""
    """Random, chosen when the trigger is made: no run file that is imported can have the id of a run that a later
    message starts."""

    def start_for(self, task: str, message: str, at: float) -> OwedStart:
        """Return the run that a message of this id starts, with the task that was rendered for it."""
        spec, owner = self.spec, f"trigger {self.spec.name} {self.salt}"
        return OwedStart(
            run=run_id_of(spec.agent, owner, message),
            owner=owner,
            key=message,
            agent=spec.agent,
            task=task,
            tick=at,
        )


def check_variable(key: str, name: str) -> None:
    """Raise SpecError, which names `key`, unless `name` is that of an environment variable for secrets."""
    if not _VARIABLE.fullmatch(name):
        raise SpecError(
            f"write the name of an environment variable of the gateways that begins with {SECRET_PREFIX},"
            f" such as {SECRET_PREFIX}DESK; never write the secret itself",
            key=key,
        )


def _payload(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return data.decode("utf-8", "replace")


def _is_pattern(pattern: str) -> bool:
    tokens = pattern.split(".")
    plain = [
        "x" if token == "*" or (token == ">" and i == len(tokens) - 1) else token for i, token in enumerate(tokens)
    ]
    return _PATTERN.fullmatch(".".join(plain)) is not None


def _matches(pattern: list[str], subject: list[str]) -> bool:
    for i, token in enumerate(pattern):
        if token == ">":
            return len(subject) > i
        if i >= len(subject) or token not in ("*", subject[i]):
            return False
    return len(pattern) == len(subject)

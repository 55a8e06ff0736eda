"""Starts the runs of triggers: from messages on the bus and from signed webhooks, one for each id."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from cadre.adapters.nats.automations import NatsDefinitions
from cadre.automation.durations import seconds_of
from cadre.automation.schedule_state import OwedStart
from cadre.automation.signature import SignatureInvalid, verify
from cadre.automation.trigger import TriggerSpec, trigger_key
from cadre.errors import SpecError, UnreadableMessage
from cadre.ports import Clock
from cadre.protocol.topology import run_id_of
from cadre_gateway.automation.run_starter import RunStarter, submission_of
from cadre_gateway.automation.scheduler import StartRefused
from cadre_gateway.requests.problems import Problem, invalid

_FRESH_SECONDS = 1.0
"""For so long the list of triggers is not read anew."""

_MAX_ID_CHARS = 255
_TOO_MANY_REQUESTS = 429


@dataclass
class TriggerIntake:
    """Every method raises RetryableError, and those of requests a problem."""

    triggers: NatsDefinitions[TriggerSpec]
    runs: RunStarter
    clock: Clock
    secret: Callable[[str], str]
    """Finds the secret of a name; "" when there is none."""
    _known: list[TriggerSpec] = field(default_factory=list)
    _read_at: float = 0.0

    async def all(self) -> list[TriggerSpec]:
        """All triggers by name, without those that only a newer gateway can read."""
        return [one for one in await self.triggers.all() if isinstance(one, TriggerSpec)]

    async def show(self, name: str) -> TriggerSpec:
        """One trigger. Raises a 404 problem."""
        try:
            found, _ = await self.triggers.read(name)
        except UnreadableMessage as error:
            raise Problem(409, "newer-version", f"trigger {name!r} is of a newer gateway: {error}") from error
        if found is None:
            raise Problem(
                404, "unknown-trigger", f"there is no trigger {name!r}: GET /v1/triggers lists them"
            )
        return found

    async def put(self, spec: TriggerSpec) -> TriggerSpec:
        """Makes or replaces a trigger. Raises a 422 problem."""
        submission_of(spec.agent, "as of its first message", spec.options)
        await self.triggers.put(spec.name, spec)
        self._read_at = 0.0
        return spec

    async def remove(self, name: str) -> None:
        """Removes a trigger. Raises a 404 problem."""
        await self.show(name)
        await self.triggers.remove(name)
        self._read_at = 0.0

    async def on_message(self, subject: str, message: str, payload: bytes) -> list[str]:
        """Starts a run for each trigger that listens to the subject; returns why some were not started."""
        if time.monotonic() - self._read_at > _FRESH_SECONDS:
            self._known, self._read_at = await self.all(), time.monotonic()
        refusals = []
        for spec in self._known:
            if spec.listens_to(subject):
                try:
                    await self._start(spec, message, payload, subject)
                except (SpecError, StartRefused) as error:
                    refusals.append(f"trigger {spec.name}: {error}")
        return refusals

    async def on_webhook(self, name: str, headers: dict[str, str], body: bytes) -> str:
        """Starts the run of a webhook and returns its id; the same message again finds the run that it started.

        Raises a 401, 404, 422 or 429 problem.
        """
        spec = await self.show(name)
        if spec.webhook is None:
            raise Problem(404, "unknown-trigger", f"trigger {name!r} has no webhook")
        message = headers.get("webhook-id", "")
        if len(message) > _MAX_ID_CHARS:
            raise invalid(f"webhook-id: send at most {_MAX_ID_CHARS} characters")
        secret = self.secret(spec.webhook.secret_env)
        if not secret:
            raise Problem(503, "no-secret", f"trigger {name!r}: its secret is not set at this gateway")
        try:
            verify(
                secret,
                message,
                headers.get("webhook-timestamp", ""),
                headers.get("webhook-signature", ""),
                body,
                now=self.clock.now(),
                tolerance=seconds_of("webhook.tolerance", spec.webhook.tolerance),
            )
        except (SignatureInvalid, ValueError) as error:
            raise Problem(401, "invalid-signature", str(error)) from error
        try:
            return await self._start(spec, message, body, "")
        except (SpecError, StartRefused) as error:
            if isinstance(error.__cause__, Problem) and error.__cause__.status == _TOO_MANY_REQUESTS:
                raise error.__cause__ from error
            raise invalid(str(error)) from error

    async def _start(self, spec: TriggerSpec, message: str, payload: bytes, subject: str) -> str:
        key = trigger_key(spec.name, message)
        run = run_id_of(spec.agent, key)
        task = spec.task_for(payload, message, subject)
        start = OwedStart(run=run, key=key, agent=spec.agent, task=task, tick=self.clock.now())
        await self.runs.start(start, spec.options)
        return run

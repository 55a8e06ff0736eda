"""Starts the runs of triggers: from messages on the bus and from signed webhooks, one for each id."""

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from cadre.adapters.nats.automations import NatsDefinitions
from cadre.api.automations import TriggerView
from cadre.automation.signature import SignatureInvalid, verify
from cadre.automation.trigger import TriggerSpec, TriggerState
from cadre.errors import SpecError, UnreadableMessage
from cadre.ports import Clock
from cadre.spec.durations import checked_seconds
from cadre_gateway.access.makers import maker_of
from cadre_gateway.access.principal import Principal
from cadre_gateway.automation.evaluator import EvaluationEnded, Evaluator
from cadre_gateway.automation.run_starter import RunStarter, check_start
from cadre_gateway.automation.scheduler import StartRefused
from cadre_gateway.requests.problems import Problem, invalid

_FRESH_SECONDS = 1.0
"""For so long the list of triggers is not read anew."""

_MAX_ID_CHARS = 255
_NOT_FOUND, _TOO_MANY_REQUESTS = 404, 429


@dataclass
class TriggerIntake:
    """Every method raises RetryableError, and those of requests a problem."""

    triggers: NatsDefinitions[TriggerState]
    runs: RunStarter
    clock: Clock
    secret: Callable[[str], str]
    """Finds the secret of a name; "" when there is none."""
    evaluator: Evaluator
    _known: list[TriggerState] = field(default_factory=list)
    _read_at: float = 0.0

    async def all(self) -> list[TriggerView]:
        """All triggers by name, without those that only a newer gateway can read."""
        return await asyncio.gather(*(self._shown(one) for one in await self._states()))

    async def show(self, name: str) -> TriggerView:
        """One trigger. Raises a 404 problem."""
        return await self._shown(await self._read(name))

    async def _states(self) -> list[TriggerState]:
        return [one for one in await self.triggers.all() if isinstance(one, TriggerState)]

    async def _shown(self, state: TriggerState) -> TriggerView:
        code = ""
        try:
            await self.runs.check(state.spec, state.maker)
        except StartRefused as refusal:
            code = refusal.code
        spec = {name: getattr(state.spec, name) for name in state.spec.__struct_fields__}
        return TriggerView(**spec, maker=state.maker.name, paused_for=code)

    async def _read(self, name: str) -> TriggerState:
        try:
            found, _ = await self.triggers.read(name)
        except UnreadableMessage as error:
            raise Problem(409, "newer-version", f"trigger {name!r} is of a newer gateway: {error}") from error
        if found is None:
            raise Problem(
                404, "unknown-trigger", f"there is no trigger {name!r}: GET /v1/triggers lists them"
            )
        return found

    async def put(self, caller: Principal, spec: TriggerSpec) -> TriggerView:
        """Makes or replaces a trigger, whose runs start with the caller's rights. Raises a 403 or 422 problem."""
        check_start(caller, spec)
        try:
            salt = (await self._read(spec.name)).salt
        except Problem as problem:
            if problem.status != _NOT_FOUND:
                raise
            salt = secrets.token_hex(16)
        state = TriggerState(spec=spec, maker=maker_of(caller), salt=salt)
        await self.triggers.put(spec.name, state)
        self._read_at = 0.0
        return await self._shown(state)

    async def remove(self, name: str) -> None:
        """Removes a trigger. Raises a 404 problem."""
        await self._read(name)
        await self.triggers.remove(name)
        self._read_at = 0.0

    async def on_message(self, subject: str, message: str, payload: bytes) -> list[str]:
        """Starts a run for each trigger that listens to the subject; returns why some were not started. Raises
        EvaluationEnded once all others are started."""
        if time.monotonic() - self._read_at > _FRESH_SECONDS:
            self._known, self._read_at = await self._states(), time.monotonic()
        refusals, ended = [], None
        for state in self._known:
            if state.spec.listens_to(subject):
                try:
                    await self._start(state, message, payload, subject)
                except (SpecError, StartRefused) as error:
                    refusals.append(f"trigger {state.spec.name}: {error}")
                except EvaluationEnded as error:
                    ended = EvaluationEnded(f"trigger {state.spec.name}: {error}")
        if ended is not None:
            raise ended
        return refusals

    async def on_webhook(self, name: str, headers: dict[str, str], body: bytes) -> str:
        """Starts the run of a webhook and returns its id; the same message again finds the run that it started.

        Raises a 401, 404, 422, 429 or 503 problem.
        """
        state = await self._read(name)
        spec = state.spec
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
                tolerance=checked_seconds("webhook.tolerance", spec.webhook.tolerance),
            )
        except (SignatureInvalid, ValueError) as error:
            raise Problem(401, "invalid-signature", str(error)) from error
        try:
            return await self._start(state, message, body, "")
        except (SpecError, StartRefused) as error:
            if isinstance(error, StartRefused) and error.code.startswith("maker-"):
                raise Problem(503, "trigger-paused", f"trigger {name!r}: {error}") from error
            if isinstance(error.__cause__, Problem) and error.__cause__.status == _TOO_MANY_REQUESTS:
                raise error.__cause__ from error
            raise invalid(str(error)) from error
        except EvaluationEnded as error:
            raise Problem(422, "evaluation-ended", f"trigger {name!r}: {error}") from error

    async def _start(self, state: TriggerState, message: str, payload: bytes, subject: str) -> str:
        await self.runs.check(state.spec, state.maker)
        task = await self.evaluator.task_for(state.spec, payload, message, subject)
        start = state.start_for(task, message, self.clock.now())
        return await self.runs.start(start, state.spec.options, state.maker)

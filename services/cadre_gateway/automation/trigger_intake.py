"""Triggers as people change them, and the runs that their messages and webhooks start, one for each id."""

import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from cadre.adapters.nats.automations import NatsDefinitions
from cadre.api.automations import RefusedMessage, TriedTrigger, TriggerView
from cadre.automation.automation_file import TRIGGER
from cadre.automation.notice import SignatureInvalid, verify
from cadre.automation.trigger import TriggerSpec, TriggerState
from cadre.errors import SpecError
from cadre.ports import Clock
from cadre.spec.durations import checked_seconds
from cadre_gateway.access.makers import maker_of
from cadre_gateway.access.principal import Principal
from cadre_gateway.automation.evaluator import EvaluationEnded, Evaluator
from cadre_gateway.automation.resource import Resource, spread
from cadre_gateway.automation.scheduler import RunStarter, StartRefused, check_start
from cadre_gateway.requests.problems import Problem, invalid

_FRESH_SECONDS = 1.0
"""Seconds for which the list of triggers is not read again."""

_MAX_ID_CHARS = 255
_MAX_REFUSALS = 20
_NOT_FOUND, _TOO_MANY_REQUESTS = 404, 429


@dataclass
class TriggerIntake(Resource[TriggerSpec, TriggerState, TriggerView]):
    """Triggers, whose runs messages and webhooks start."""

    states: NatsDefinitions[TriggerState]
    runs: RunStarter
    clock: Clock
    secret: Callable[[str], str]
    """Finds the secret of a name; "" without one."""
    evaluator: Evaluator
    events_prefix: str
    """Begins the subjects on the bus that triggers listen to."""
    definition = TRIGGER
    view = TriggerView
    _listening: list[TriggerState] = field(default_factory=list)
    _read_at: float = 0.0
    _refusals: dict[str, deque[RefusedMessage]] = field(default_factory=dict)

    def stored(self, spec: TriggerSpec, before: TriggerState | None, caller: Principal) -> TriggerState:
        """Return the trigger, whose runs start with the caller's rights. Raises a 403 or 422 problem."""
        check_start(caller, spec)
        salt = secrets.token_hex(16) if before is None else before.salt
        return TriggerState(spec=spec, maker=maker_of(caller), salt=salt)

    async def shown(self, state: TriggerState, upcoming: int) -> TriggerView:
        """Return the trigger, with why it starts no runs."""
        code = ""
        try:
            await self.runs.check(state.spec, state.maker)
        except StartRefused as refusal:
            code = refusal.code
        found = spread(TriggerView, state.spec, maker=state.maker.name, paused_for=code)
        return msgspec.structs.replace(
            found,
            bus_subject=f"{self.events_prefix}{state.spec.subject}" if state.spec.subject else "",
            refusals=list(self._refusals.get(state.spec.name, ())),
        )

    async def changed(self, name: str) -> None:
        """Have the next message meet it."""
        self._read_at = 0.0

    async def on_message(self, subject: str, message: str, payload: bytes) -> list[str]:
        """Start a run for each trigger that listens to the subject; returns why some were not started. Raises
        EvaluationEnded once all others are started."""
        if time.monotonic() - self._read_at > _FRESH_SECONDS:
            self._listening, self._read_at = await self.known(), time.monotonic()
        refusals, ended = [], None
        for state in self._listening:
            if state.spec.listens_to(subject):
                try:
                    await self._start(state, message, payload, subject)
                except (SpecError, StartRefused) as error:
                    refusals.append(f"trigger {state.spec.name}: {error}")
                    code = error.code if isinstance(error, StartRefused) else "invalid-request"
                    self._note(state, message, subject, code, str(error))
                except EvaluationEnded as error:
                    self._note(state, message, subject, "evaluation-ended", str(error))
                    ended = EvaluationEnded(f"trigger {state.spec.name}: {error}")
        if ended is not None:
            raise ended
        return refusals

    async def on_webhook(self, name: str, headers: dict[str, str], body: bytes) -> str:
        """Start the run of a webhook and return its id; the same message again finds the run that it started.

        Raises a 401, 404, 422, 429 or 503 problem.
        """
        state = await self.read(name)
        try:
            return await self._take_webhook(state, headers, body)
        except Problem as problem:
            self._note(state, headers.get("webhook-id", ""), "", problem.code, problem.detail)
            raise

    async def attempt(self, caller: Principal, name: str, payload: bytes, subject: str, *, start: bool) -> TriedTrigger:
        """Return the task that the trigger makes of a message; with `start` start its run, with the caller's rights.
        Raises a 403, 404, 422 or 429 problem."""
        state = await self.read(name)
        spec, message = state.spec, f"try-{secrets.token_hex(16)}"
        check_start(caller, spec)
        try:
            task = await self.evaluator.task_for(spec, payload, message, subject)
            if not start:
                return TriedTrigger(task=task)
            owed, maker = state.start_for(task, message, self.clock.now()), maker_of(caller)
            run = await self.runs.start(owed, spec.start_options, maker, spec.standing)
        except SpecError as error:
            raise invalid(str(error)) from error
        except EvaluationEnded as error:
            raise Problem(422, "evaluation-ended", f"trigger {name!r}: {error}") from error
        except StartRefused as error:
            if isinstance(error.__cause__, Problem):
                raise error.__cause__ from error
            raise Problem(403, "forbidden", str(error)) from error
        return TriedTrigger(task=task, run=run)

    def _note(self, state: TriggerState, message: str, subject: str, code: str, detail: str) -> None:
        """Remember that a message was refused."""
        kept = self._refusals.setdefault(state.spec.name, deque(maxlen=_MAX_REFUSALS))
        at, known_as = self.clock.now(), message[:_MAX_ID_CHARS]
        kept.appendleft(RefusedMessage(at=at, id=known_as, subject=subject, code=code, detail=detail))

    async def _take_webhook(self, state: TriggerState, headers: dict[str, str], body: bytes) -> str:
        spec, name = state.spec, state.spec.name
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
        if spec.paused:
            raise Problem(503, "trigger-paused", f"trigger {name!r} is paused: send it again later")
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
        return await self.runs.start(start, state.spec.start_options, state.maker, state.spec.standing)

"""Keep notices and send their webhooks, and push to callers how their tasks go, at addresses that they have given."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from cadre.adapters.nats.automations import NatsDefinitions, NatsDeliveries
from cadre.adapters.nats.queues.queue import LateQueue, NatsDelivery, Queue, ShardQueues
from cadre.adapters.nats.reading.history import History
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.webhooks import WebhookFailed, WebhookGone, WebhookSender
from cadre.api.automations import NoticeView
from cadre.automation.automation_file import NOTICE
from cadre.automation.notice import (
    ATTEMPTS,
    MAX_PUSHES,
    PUSH,
    RETRY_SECONDS,
    Happened,
    NoticeDelivery,
    NoticeSpec,
    NoticeState,
    PushTarget,
    TaskPushes,
    budget_warning,
    cloud_event,
    happened_in,
    signature,
)
from cadre.delivery.codec import decode, unpack_entry
from cadre.delivery.fair_limiter import FairLimiter
from cadre.engine.fold import fold
from cadre.errors import BlobMissing, BusUnavailable, Fenced, NewerSchema, RetryableError, UnreadableMessage
from cadre.journal.entry import Entry
from cadre.journal.events import DelegateFinished, ModelAnswered
from cadre.ports import Clock
from cadre.protocol.access import Maker
from cadre.protocol.topology import Subject, Topology
from cadre.service.platform import Platform
from cadre_gateway.access.makers import MakerGone, Makers, maker_of
from cadre_gateway.access.principal import Principal
from cadre_gateway.automation.queues import Trials, start_queue
from cadre_gateway.automation.resource import Resource, spread
from cadre_gateway.requests.problems import Problem, invalid

log = logging.getLogger("cadre.notices")

_FRESH_SECONDS = 1.0
"""Seconds for which the list of notices is not read again."""

_LOOK_SECONDS = 2.0
"""Seconds between two checks for notices."""

_AGAIN_SECONDS = 5.0
_AT_ONCE = 64


class DeliveryGivenUp(Exception):
    """A webhook is not tried again; the text says why."""


@dataclass
class Notices(Resource[NoticeSpec, NoticeState, NoticeView]):
    """Notices, and the deliveries that they ask for."""

    states: NatsDefinitions[NoticeState]
    deliveries: NatsDeliveries
    history: History
    sender: WebhookSender
    source: str
    """Names this deployment in what is sent."""
    clock: Clock
    secret: Callable[[str], str]
    """Finds the secret of a name; "" without one."""
    pushes: PushNotifications
    makers: Makers
    definition = NOTICE
    view = NoticeView
    _sent: list[NoticeSpec] = field(default_factory=list)
    _read_at: float = 0.0

    def stored(self, spec: NoticeSpec, before: NoticeState | None, caller: Principal) -> NoticeState:
        """Return the notice, which is sent as long as the caller may have it."""
        return NoticeState(spec=spec, maker=maker_of(caller))

    async def shown(self, state: NoticeState, upcoming: int) -> NoticeView:
        """Return the notice, with why it is not sent."""
        return spread(NoticeView, state.spec, maker=state.maker.name, paused_for=await self._loss(state.maker))

    async def changed(self, name: str) -> None:
        """Have the next thing that happens meet it."""
        self._read_at = 0.0

    async def _loss(self, maker: Maker) -> str:
        """Return why the maker's notices are not sent, a MakerLoss; "" while they are."""
        try:
            caller = await self.makers.caller(maker)
        except MakerGone as gone:
            return gone.code
        return "" if caller.sees_all and caller.may("administer") else "maker-forbidden"

    async def sent(self) -> list[NoticeSpec]:
        """Return all notices that are sent, as they were a second ago at most."""
        if time.monotonic() - self._read_at > _FRESH_SECONDS:
            active = [one for one in await self.known() if not one.spec.paused]
            self._sent = [one.spec for one in active if not await self._loss(one.maker)]
            self._read_at = time.monotonic()
        return self._sent

    async def on_entry(self, seq: int, entry: Entry) -> None:
        """Enqueue a delivery for each notice that matches the entry at `seq`, and for each address that follows this
        task."""
        await self.pushes.on_entry(entry)
        specs = await self.sent()
        happened = list(happened_in(entry))
        if any(spec.tells_of("budget.warning") for spec in specs) and _is_spending(entry):
            happened += await self._budget_warnings(seq, entry)
        for one in happened:
            await self.tell(one, entry.agent)

    async def tell(self, happened: Happened, agent: str) -> bool:
        """Enqueue a delivery for each notice that matches; return whether any does."""
        wanted = [spec for spec in await self.sent() if spec.wants(happened, agent)]
        for spec in wanted:
            await self.deliveries.send(_delivery(spec, happened))
        return bool(wanted)

    async def is_wanted(self) -> bool:
        """Return whether any notice needs the journals."""
        return bool(await self.sent()) or await self.pushes.any()

    async def deliver(self, delivery: NoticeDelivery) -> None:
        """Send a webhook; one that is not taken is scheduled again. Raises DeliveryGivenUp."""
        if delivery.type == PUSH:
            try:
                await self._try(delivery, f"task {delivery.run}", ATTEMPTS, self.pushes.post(delivery))
            except DeliveryGivenUp:
                await self.pushes.settled(delivery)
                raise
            return
        found, _ = await self.states.read(delivery.notice)
        if found is not None:
            spec = found.spec
            if loss := await self._loss(found.maker):
                raise DeliveryGivenUp(f"notice {spec.name}: {loss}: an administrator has to write it again")
            await self._try(delivery, f"notice {spec.name}", spec.attempts, self._post(spec, delivery))

    async def _try(self, delivery: NoticeDelivery, what: str, attempts: int, posting: Awaitable[None]) -> None:
        try:
            await posting
        except WebhookGone as error:
            raise DeliveryGivenUp(f"{what}: {error}") from error
        except WebhookFailed as error:
            if delivery.attempt >= attempts:
                raise DeliveryGivenUp(f"{what}: not taken in {delivery.attempt} tries, at last: {error}") from error
            pause = RETRY_SECONDS[min(delivery.attempt, len(RETRY_SECONDS)) - 1]
            log.warning("%s: %s; trying again in %g s", what, error, pause)
            await self.deliveries.retry(delivery, self.clock.now() + pause)

    async def _post(self, spec: NoticeSpec, delivery: NoticeDelivery) -> None:
        secret = self.secret(spec.secret_env)
        if not secret:
            raise WebhookFailed("its secret is not set at this gateway")
        body, now = cloud_event(delivery, self.source), int(self.clock.now())
        try:
            signed = signature(secret, delivery.id, now, body)
        except ValueError as error:
            raise WebhookFailed(str(error)) from error
        headers = {
            "Content-Type": "application/cloudevents+json",
            "User-Agent": "Cadre",
            "webhook-id": delivery.id,
            "webhook-timestamp": str(now),
            "webhook-signature": signed,
        }
        await self.sender.post(spec.url, body, headers)

    async def _budget_warnings(self, seq: int, entry: Entry) -> list[Happened]:
        stored = await self.history.read_run(entry.tree, entry.run)
        before = [one.entry for one in stored if one.seq < seq]
        if len(before) != entry.n - 1:
            raise BusUnavailable(f"reading run {entry.run}", f"{len(before)} of {entry.n - 1} entries are there yet")
        run = fold(before, entry.run, entry.tree)
        if run.budget is None:
            return []
        warning = budget_warning(run, fold([*before, entry], entry.run, entry.tree), entry)
        return [] if warning is None else [warning]


def _is_spending(entry: Entry) -> bool:
    return entry.parent is None and any(isinstance(one, ModelAnswered | DelegateFinished) for one in entry.events)


def _delivery(spec: NoticeSpec, happened: Happened) -> NoticeDelivery:
    return NoticeDelivery(
        notice=spec.name,
        id=happened.id,
        type=happened.type,
        run=happened.run,
        at=happened.at,
        data=happened.data,
    )


@dataclass(eq=False)
class NoticeQueues:
    """Follows the journals of all shards as long as there are notices; without notices nothing is read."""

    platform: Platform
    notices: Notices
    trials: Trials
    _journals: ShardQueues[LateQueue] | None = None
    _deliveries: list[Queue] = field(default_factory=list)
    _changing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self) -> None:
        """Work until cancelled. Raises SetupError."""
        consumer = Topology.deliveries_consumer()
        self._deliveries.append(await start_queue(self.platform, consumer, Subject.DELIVERY, self._deliver))
        while True:
            try:
                await self._follow(await self.notices.is_wanted())
            except RetryableError as error:
                log.warning("notices: %s", error)
            await asyncio.sleep(_LOOK_SECONDS)

    async def drain(self, grace: float) -> None:
        """End the work in progress within `grace` seconds and hand back the rest."""
        if self._journals is not None:
            await self._journals.drain(grace)
        for queue in self._deliveries:
            await queue.drain(grace)

    async def follow_now(self) -> None:
        """Follow what is journaled from now on, without waiting for the next look."""
        await self._follow(True)

    async def _follow(self, wanted: bool) -> None:
        async with self._changing:
            await self._set(wanted)

    async def _set(self, wanted: bool) -> None:
        topology = self.platform.topology
        if wanted and self._journals is None:
            limiter = FairLimiter(_AT_ONCE, queues=topology.shards)
            self._journals = await ShardQueues(
                self.platform.nc,
                self.platform.shards,
                Topology.notices_consumer(),
                topology.journals_of_shard,
                self._on_entry,
                limiter,
                LateQueue,
            ).start()
        elif not wanted and self._journals is not None:
            journals, self._journals = self._journals, None
            await journals.drain(1.0)
            for queue in journals.queues:
                await queue.remove()

    async def _on_entry(self, delivery: NatsDelivery) -> None:
        if Topology.is_lifecycle(delivery.subject):
            await delivery.ack()
            return
        try:
            entry = await unpack_entry(delivery.data, self.platform.blobs)
        except NewerSchema:
            await delivery.nak(_AGAIN_SECONDS)
            return
        except (UnreadableMessage, BlobMissing) as error:
            log.warning("entry %d on %s notifies no one: %s", delivery.seq, delivery.subject, error)
            await delivery.ack()
            return
        if not delivery.imported:
            await self.notices.on_entry(delivery.seq, entry)
        await delivery.ack()

    async def _deliver(self, delivery: NatsDelivery) -> None:
        await self.trials.attempt(delivery, lambda: self._send(delivery), delivery.term)

    async def _send(self, delivery: NatsDelivery) -> None:
        try:
            await self.notices.deliver(decode(delivery.data, NoticeDelivery))
        except (DeliveryGivenUp, UnreadableMessage) as error:
            await delivery.term(str(error))
            return
        except RetryableError as error:
            log.warning("%s is handled again in %g s: %s", delivery.subject, _AGAIN_SECONDS, error)
            await delivery.nak(_AGAIN_SECONDS)
            return
        await delivery.ack()
        await jetstream.delete(self.platform.nc, self.platform.topology.automation_stream, delivery.seq)


_TRIES = 5

Body = Callable[[str], Awaitable[bytes]]
"""The body that describes the current state of a run's task. Raises Problem, RetryableError."""


@dataclass
class PushNotifications:
    """Every method raises RetryableError."""

    definitions: NatsDefinitions[TaskPushes]
    deliveries: NatsDeliveries
    sender: WebhookSender
    clock: Clock
    makers: Makers
    body: Body | None = None
    """Set by the door that knows the form; without it nothing is sent from this gateway."""
    follow: Callable[[], Awaitable[None]] | None = None
    """Has the journals followed from now on."""
    _any: bool = False
    _read_at: float = field(default=float("-inf"))

    async def any(self) -> bool:
        """Return whether any task has an address, as it was a second ago at most."""
        if time.monotonic() - self._read_at > _FRESH_SECONDS:
            self._any, self._read_at = await self.definitions.has_any(), time.monotonic()
        return self._any

    async def all(self, run: str) -> list[PushTarget]:
        """Return the addresses of a task."""
        found, _ = await self.definitions.read(run)
        return found.targets if found is not None else []

    async def put(self, run: str, target: PushTarget) -> None:
        """Keep an address, in the place of one of the same id; from now on it receives deliveries. Raises a 422
        problem."""
        await self._change(run, lambda held: _with(held, target))
        self._any = True
        if self.follow is not None:
            await self.follow()

    async def remove(self, run: str, name: str) -> None:
        """Forget an address, if it is there."""
        await self._change(run, lambda held: held.without(name))

    async def _change(self, run: str, change: Callable[[TaskPushes], TaskPushes]) -> None:
        for _ in range(_TRIES):
            held, fence = await self.definitions.read(run)
            changed = change(held or TaskPushes(run=run, targets=[]))
            if held is not None and not changed.targets:
                await self.definitions.remove(run)
                return
            if not changed.targets or changed == held:
                return
            try:
                await self.definitions.write(run, changed, fence)
            except Fenced:
                continue
            return
        raise Problem(409, "changed-meanwhile", f"the addresses of task {run} keep changing: try again")

    async def on_entry(self, entry: Entry) -> None:
        """Enqueue a delivery to each address of the task for which the entry has news."""
        happened = [one.id for one in happened_in(entry)]
        if happened:
            await self.tell(entry.tree, happened)

    async def tell(self, run: str, happened: Iterable[str], only: str = "") -> None:
        """Put a delivery on its way for each of these ids of what has happened, to all addresses or to that one."""
        targets = [one for one in await self.all(run) if only in ("", one.id)]
        for what in happened:
            for target in targets:
                delivery = NoticeDelivery(
                    notice=target.id,
                    id=f"{what}:{target.id}",
                    type=PUSH,
                    run=run,
                    at=self.clock.now(),
                    data={},
                )
                await self.deliveries.send(delivery)

    async def post(self, delivery: NoticeDelivery) -> None:
        """Send a delivery. Raises WebhookFailed."""
        found, _ = await self.definitions.read(delivery.run)
        target = found.target(delivery.notice) if found is not None else None
        if target is None:
            return
        if self.body is None:
            raise WebhookFailed("this gateway does not speak A2A: CADRE_DOORS leaves it out")
        try:
            await self.makers.caller(target.maker)
            body = await self.body(delivery.run)
        except MakerGone as gone:
            raise WebhookGone(str(gone)) from gone
        except NewerSchema as error:
            raise WebhookFailed(str(error)) from error
        except Problem as error:
            raise WebhookGone(error.detail) from error
        headers = {"Content-Type": "application/a2a+json", "User-Agent": "Cadre", **target.headers()}
        await self.sender.post(target.url, body, headers)
        await self.settled(delivery)

    async def settled(self, delivery: NoticeDelivery) -> None:
        """Forget the address once it has received the end, or never will."""
        if ":finished:" in delivery.id:
            await self.remove(delivery.run, delivery.notice)


def _with(held: TaskPushes, target: PushTarget) -> TaskPushes:
    others = held.without(target.id).targets
    if len(others) >= MAX_PUSHES:
        raise invalid(f"a task has {MAX_PUSHES} addresses for push notifications at most: delete one")
    return TaskPushes(run=held.run, targets=[*others, target])

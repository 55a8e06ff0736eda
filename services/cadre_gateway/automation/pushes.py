"""Tells callers how their tasks go, at addresses that they have given: by the deliveries of notices."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from cadre.adapters.nats.automations import NatsDefinitions, NatsDeliveries
from cadre.adapters.webhooks import WebhookFailed, WebhookGone, WebhookSender
from cadre.automation.notice import NoticeDelivery, happened_in
from cadre.automation.push import MAX_PUSHES, PUSH, PushTarget, TaskPushes
from cadre.errors import Fenced, NewerSchema
from cadre.journal.entry import Entry
from cadre.ports import Clock
from cadre_gateway.access.makers import MakerGone, Makers
from cadre_gateway.requests.problems import Problem, invalid

_FRESH_SECONDS = 1.0
_TRIES = 5

Body = Callable[[str], Awaitable[bytes]]
"""The body that tells how the task of a run goes now. Raises Problem, RetryableError."""


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
        """Whether any task has an address, as it was a second ago at most."""
        if time.monotonic() - self._read_at > _FRESH_SECONDS:
            self._any, self._read_at = await self.definitions.has_any(), time.monotonic()
        return self._any

    async def all(self, run: str) -> list[PushTarget]:
        """The addresses of a task."""
        found, _ = await self.definitions.read(run)
        return found.targets if found is not None else []

    async def put(self, run: str, target: PushTarget) -> None:
        """Keeps an address, in the place of one of the same id; from now on it is told. Raises a 422 problem."""
        await self._change(run, lambda held: _with(held, target))
        self._any = True
        if self.follow is not None:
            await self.follow()

    async def remove(self, run: str, name: str) -> None:
        """Forgets an address, if it is there."""
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
        """Puts a delivery on its way to each address of the task that the entry tells something of."""
        happened = [one.id for one in happened_in(entry)]
        if happened:
            await self.tell(entry.tree, happened)

    async def tell(self, run: str, happened: Iterable[str], only: str = "") -> None:
        """Puts a delivery on its way for each of these ids of what has happened, to all addresses or to that one."""
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
        """Sends a delivery. Raises WebhookFailed."""
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
        """Forgets the address once it was told of the end, or will not be."""
        if ":finished:" in delivery.id:
            await self.remove(delivery.run, delivery.notice)


def _with(held: TaskPushes, target: PushTarget) -> TaskPushes:
    others = held.without(target.id).targets
    if len(others) >= MAX_PUSHES:
        raise invalid(f"a task has {MAX_PUSHES} addresses for push notifications at most: delete one")
    return TaskPushes(run=held.run, targets=[*others, target])

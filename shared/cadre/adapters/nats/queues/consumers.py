"""Durable consumers: created by the first that needs them, a service or the deployment of one; and the messages
behind their positions that an agent has sent."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from nats.aio.client import Client

from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.connection.keys import may_provision, user_of
from cadre.adapters.nats.registry import keep_card, take_back, take_card_away
from cadre.adapters.nats.registry_view import ServiceKey
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.provision import provision, remedy
from cadre.delivery.retry import EVERY_SECOND, Setup, retry
from cadre.errors import BusUnavailable, NotSetUpYet, SetupError
from cadre.ports import CallQueue, QueuedMessage
from cadre.protocol.nats_users import Role, consumers, tools_of
from cadre.protocol.rollout import slot_receiver
from cadre.protocol.topology import Subject, Topology
from cadre.settings import Settings
from cadre.spec.agent import AgentSpec

ACK_WAIT_SECONDS = 4.0
"""Seconds after which a record whose handler gives no sign of life goes to another replica."""

MAX_DELIVER = 1000
"""A net below the workers' own judgement (`cadre.delivery.quarantine`): beyond it the server gives up a message on its
own, and then nothing ends its run. Restarts, and upgrades that take hours, must not reach it."""

_CANNOT_BE = 10012
"""The error of a consumer that cannot be made, or changed, like this."""

_BEGINNING = ("deliver_policy", "opt_start_seq")

ENDLESS = -1
"""As a number of deliveries: none is the last."""


async def ensure_consumer(
    nc: Client, stream: str, consumer: str, subjects: str, most_deliveries: int = MAX_DELIVER
) -> None:
    """Create the consumer if it is absent. Raises BusUnavailable, and SetupError when its name is taken by another one,
    or when it is absent and this user may not create it."""
    if not may_provision(nc):
        await _find(nc, stream, consumer, subjects)
        return
    config = queue_config(consumer, subjects, most_deliveries)
    await create_consumer(nc, stream, f"{consumer}.{subjects}", config)


def queue_config(consumer: str, subjects: str, most_deliveries: int = MAX_DELIVER) -> dict[str, Any]:
    """Configuration of a durable consumer as a queue, in the JSON of the JetStream API."""
    return {
        "durable_name": consumer,
        "filter_subject": subjects,
        "ack_policy": "explicit",
        "ack_wait": int(ACK_WAIT_SECONDS * 1e9),
        "max_deliver": most_deliveries,
        "max_ack_pending": 10_000,
        "max_waiting": 4096,
    }


async def create_consumer(nc: Client, stream: str, name: str, config: dict[str, Any]) -> None:
    """Create a durable consumer, or brings one that is there up to date, but for where it has begun: one of a restored
    stream has begun at the first message that was not handled. `name` may be followed by its subjects.

    Raises BusUnavailable, and SetupError when another one has its name.
    """
    consumer = config["durable_name"]
    body = {"stream_name": stream, "config": config}
    answer = await jetstream.api(nc, f"CONSUMER.CREATE.{stream}.{name}", body)
    error = answer.get("error")
    if error is not None and error.get("err_code") == _CANNOT_BE:
        found = (await jetstream.api(nc, f"CONSUMER.INFO.{stream}.{consumer}")).get("config", {})
        begun = {key: found[key] for key in _BEGINNING if key in found}
        if begun.get("deliver_policy", "all") != config.get("deliver_policy", "all"):
            body["config"] = config | begun
            answer = await jetstream.api(nc, f"CONSUMER.CREATE.{stream}.{name}", body)
            error = answer.get("error")
    if error is None:
        return
    if jetstream.is_passing(error):
        raise BusUnavailable(f"asking for consumer {consumer}", error.get("description"))
    raise SetupError(f"consumer {consumer} on {stream}: {remedy(error)}")


async def _find(nc: Client, stream: str, consumer: str, subjects: str) -> None:
    answer = await jetstream.api(nc, f"CONSUMER.INFO.{stream}.{consumer}")
    error = answer.get("error")
    if error is None and answer["config"].get("filter_subject") == subjects:
        return
    if error is not None and jetstream.is_passing(error):
        raise BusUnavailable(f"asking for consumer {consumer}", error.get("description"))
    lack = "does not exist" if error is not None else "is another one's"
    raise (NotSetUpYet if error is not None else SetupError)(
        f"consumer {consumer} on {stream} {lack}, and {user_of(nc)} may not make it: run `cadre provision` with the"
        " operator's key, naming the team or this service"
    )


async def provision_roles(settings: Settings, roles: Sequence[Role], at_rest: Iterable[AgentSpec] = ()) -> Topology:
    """Create the streams and buckets, and the queues of these roles on every shard; keeps the cards of agents
    `at_rest` in the registry, and of no other agent among the roles. Waits for the server.

    Raises SetupError, StreamDrift, BusUnavailable.
    """
    nc = await connect(settings, "cadre provision", setup=Setup(settings.setup_seconds))
    try:
        if not may_provision(nc):
            raise SetupError(f"{user_of(nc)} may not make streams: name the operator's key in CADRE_NATS_CREDENTIALS")
        topology = await retry(lambda: provision(nc, settings), pauses=EVERY_SECOND)
        # Before the queues are looked for: a gateway that is about to remove one looks for the marker after it.
        for service in (service for role in roles for service in _services(role)):
            await retry(partial(take_back, nc, topology, service), pauses=EVERY_SECOND)
        for consumer in (consumer for role in roles for consumer in consumers(role, topology)):
            most = ENDLESS if consumer.endless else MAX_DELIVER
            for stream, subjects in consumer.places(topology):
                await retry(
                    partial(ensure_consumer, nc, stream, consumer.name, subjects, most_deliveries=most),
                    pauses=EVERY_SECOND,
                )
        resting = {one.name: one for one in at_rest}
        for agent in (role.name for role in roles if role.kind == "agent"):
            spec = resting.get(agent)
            settle = partial(keep_card, nc, topology, spec) if spec else partial(take_card_away, nc, topology, agent)
            await retry(settle, pauses=EVERY_SECOND)
        return topology
    finally:
        await nc.close()


def _services(role: Role) -> list[ServiceKey]:
    found = [ServiceKey("tool", tool) for tool in tools_of(role)]
    if role.kind in ("agent", "sandbox"):
        found.append(ServiceKey(role.kind, role.name))
    return found


_PAGE = 64
_NO_CONSUMER = 404


class NatsQueuedCalls:
    """ports.QueuedCalls of one agent, on the deployment's shards."""

    def __init__(self, nc: Client, topology: Topology, agent: str) -> None:
        self._nc = nc
        self._topology = topology
        self._agent = agent

    async def behind(self, queue: CallQueue, shard: int, after: int) -> list[QueuedMessage]:
        stream = self._topology.stream(shard)
        # A reader that has come so far need not ask for the position of the queue, which is there or further on.
        after = after or await self._settled(stream, self._consumer(queue))
        query = {"seq": after + 1, "batch": _PAGE, "next_by_subj": self._filter(queue, shard)}
        return [
            QueuedMessage(found.seq, *Topology.parse(found.subject), _stored_at(found))
            for found in await jetstream.batch(self._nc, stream, query)
        ]

    async def _settled(self, stream: str, consumer: str) -> int:
        """Return the sequence up to which the consumer's messages are settled; 0 where there is no such consumer."""
        answer = await jetstream.api(self._nc, f"CONSUMER.INFO.{stream}.{consumer}")
        if (error := answer.get("error")) is None:
            return int(answer["ack_floor"]["stream_seq"])
        if error.get("code") == _NO_CONSUMER:
            return 0
        raise BusUnavailable(f"asking for consumer {consumer}", error.get("description"))

    def _consumer(self, queue: CallQueue) -> str:
        match queue.kind:
            case "agent":
                return self._topology.agent_consumer(queue.name, queue.slot)
            case "tool":
                return self._topology.tool_consumer(queue.name)
            case "sandbox":
                return self._topology.code_consumer(queue.name)

    def _filter(self, queue: CallQueue, shard: int) -> str:
        match queue.kind:
            case "agent":
                receiver = slot_receiver(queue.name, queue.slot)
                return self._topology.below(Subject.INBOX, shard=shard, agent=receiver, sender=self._agent)
            case "tool":
                return self._topology.below(Subject.CALL, shard=shard, tool=queue.name, sender=self._agent)
            case "sandbox":
                return self._topology.code_filter(shard, queue.name)


def _stored_at(message: jetstream.StoredMessage) -> float:
    return datetime.fromisoformat((message.headers or {})["Nats-Time-Stamp"]).timestamp()

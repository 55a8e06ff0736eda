"""Messages that an agent has sent and that are not settled: read from the streams, after the position of each queue."""

from datetime import datetime

from nats.aio.client import Client

from cadre.adapters.nats.streams import jetstream
from cadre.errors import BusUnavailable
from cadre.ports import CallQueue, QueuedMessage
from cadre.protocol.rollout import slot_receiver
from cadre.protocol.subjects import Subject
from cadre.protocol.topology import Topology

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
        """The sequence up to which the consumer's messages are settled; 0 where there is no such consumer."""
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

"""Define who may publish and subscribe to what: one NATS user per service, its permissions derived from the topology.

Pure. A permission is about subjects alone: its limits, and what is done about them, are in docs/security.md.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple
from urllib.parse import SplitResult, urlsplit

import msgspec

from cadre.errors import SettingError
from cadre.protocol.cards import AT_REST, RETIRED
from cadre.protocol.code import INTERPRETER_TOOL
from cadre.protocol.memory import ANSWERS, MEMORY_TOOLS
from cadre.protocol.rollout import SLOTS, rollout_key, slot_receiver
from cadre.protocol.topology import Subject, Topology, exchange_stream

Kind = Literal["operator", "gateway", "agent", "tools", "sandbox", "memory", "tracer"]

OPERATOR = "operator"
"""The user that makes streams and consumers, and takes them away; no service is it."""

SANDBOX_SENDER = "sandbox"
GATEWAY_SENDER = "gateway"
"""The senders in the subjects of what they send to an inbox."""

_ASK_THE_LEADER = ("operator", "gateway", "agent", "tracer")


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """One service of a deployment; all its replicas are the same NATS user."""

    kind: Kind
    name: str = ""
    """The name of the agent, of the tools' module, or of the pool."""
    tools: tuple[str, ...] = ()
    """Names of the tools that a service of kind `tools` answers for."""
    calls: tuple[str, ...] | None = None
    """Names of the tools that an agent may call; None: any, as its file is not known."""

    @property
    def user(self) -> str:
        """The name of its NATS user."""
        return f"{self.kind}-{self.name}" if self.name else self.kind


class DurableConsumer(NamedTuple):
    """A durable consumer that a service needs, on every shard or on one stream."""

    name: str
    filters: list[str]
    """The subject that it is for on each shard, or on its one stream."""
    endless: bool = False
    """True if it has no delivery limit: none of its messages is ever a dead letter."""
    stream: str | None = None
    """The stream that it is on; None for all shards."""

    def places(self, topology: Topology) -> list[tuple[str, str]]:
        """Each stream that it is on, with its subject there."""
        shards = map(topology.stream, range(topology.shards))
        return list(zip(shards if self.stream is None else [self.stream], self.filters, strict=True))


class Permissions(NamedTuple):
    """Subjects; wildcards allowed."""

    publish: list[str]
    subscribe: list[str]
    never: list[str] = []  # noqa: RUF012  # of a tuple, and nothing is added to it
    """Subjects that may not be published to although `publish` has them."""


def team_roles(
    agents: Iterable[str],
    tools: Iterable[tuple[str, tuple[str, ...]]],
    pools: Iterable[str],
    *,
    memory: bool,
    calls: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> list[Role]:
    """The roles of a whole deployment, from its agents, its tool modules with their tools, and its pools.

    `calls` has the tools that an agent may call, by its name; an agent that it has not may call any.
    """
    return [
        Role(kind="operator"),
        Role(kind="gateway"),
        *(Role(kind="agent", name=name, calls=calls.get(name)) for name in agents),
        *(Role(kind="tools", name=name, tools=names) for name, names in tools),
        *(Role(kind="sandbox", name=pool) for pool in pools),
        *([Role(kind="memory")] if memory else []),
        Role(kind="tracer"),
    ]


def inbox_of(user: str) -> str:
    """The prefix of the subjects on which the server answers this user."""
    return f"_INBOX_{user}"


def provisions(user: str) -> bool:
    """Return whether the user makes the streams and consumers that are missing; one without a name may do
    everything.
    """
    return user in ("", OPERATOR)


def asks_leader(user: str) -> bool:
    """Return whether it may read any message of a stream, as only a stream's leader has it for certain."""
    return not user or user.partition("-")[0] in _ASK_THE_LEADER


def removes_objects(user: str) -> bool:
    """Return whether it may remove messages of the object store; the others can write over them."""
    return user in ("", OPERATOR, GATEWAY_SENDER)


def interpreter(pool: str) -> str:
    """The pool's interpreters as a tool."""
    return INTERPRETER_TOOL if pool == "default" else f"{INTERPRETER_TOOL}_{pool}"[:64]


def consumers(role: Role, topology: Topology) -> list[DurableConsumer]:
    """The queues of the role."""

    def queue(name: str, template: str, *, endless: bool = False, **tokens: str) -> DurableConsumer:
        filters = [topology.below(template, shard=shard, **tokens) for shard in range(topology.shards)]
        return DurableConsumer(name, filters, endless)

    calls = [queue(topology.tool_consumer(tool), Subject.CALL, tool=tool) for tool in tools_of(role)]
    match role.kind:
        case "agent":
            return [queue(topology.agent_consumer(role.name), Subject.INBOX, agent=role.name)]
        case "memory":
            return [*calls, queue(topology.lifecycles_consumer("memory"), Subject.LIFECYCLE)]
        case "sandbox":
            return [queue(topology.code_consumer(role.name), Subject.CODE, pool=role.name), *calls]
        case "tracer":
            return [queue(topology.tracer_consumer(), Subject.JOURNAL, endless=True)]
        case "gateway":
            queues = (
                (topology.schedules_consumer(), Subject.DUE),
                (topology.events_consumer(), Subject.EVENT),
                (topology.deliveries_consumer(), Subject.DELIVERY),
            )
            stream = topology.automation_stream
            return [DurableConsumer(name, [topology.below(what)], True, stream) for name, what in queues]
        case _:
            return calls


def tools_of(role: Role) -> tuple[str, ...]:
    """Names of the tools that the role answers for."""
    if role.kind == "sandbox":
        return (interpreter(role.name),)
    return MEMORY_TOOLS if role.kind == "memory" else role.tools


def permissions(role: Role, topology: Topology) -> Permissions:
    """The subjects that the service needs, and no others."""
    if role.kind == "operator":
        return Permissions([">"], [">"])
    bus = _Bus(topology)
    publish = [*bus.infos(), *bus.pulls(role), f"$JS.API.DIRECT.GET.KV_{topology.registry_bucket}"]
    publish += bus.presences(role)
    subscribe = [f"{inbox_of(role.user)}.>", f"$KV.{topology.registry_bucket}.>"]
    never: list[str] = []
    match role.kind:
        case "agent":
            publish += [
                *bus.journal_reads(),
                *bus.blobs(),
                *bus.quarantine(),
                *bus.tallies(),
                *bus.as_agent(role),
            ]
            subscribe += [topology.interrupts]
            never += [topology.below(Subject.LIFECYCLE)]
        case "tools":
            publish += [*bus.answers(role), *bus.blobs(), *bus.quarantine(), *bus.effects(role), *bus.files()]
            peers = [topology.executor(tool, "*") for tool in role.tools]
            publish += [*peers, *bus.replies_among_replicas(role)]
            subscribe += [topology.interrupts, *peers]
        case "sandbox":
            warm = topology.below(Subject.WARM, pool=role.name)
            publish += [*bus.answers(role), *bus.blobs(), *bus.quarantine(), *bus.seed(role)]
            publish += [
                topology.below(Subject.INBOX, sender=SANDBOX_SENDER),
                warm,
                *bus.replies_among_replicas(role),
            ]
            subscribe += [topology.interrupts, warm, topology.subject(Subject.CHUNK)]
        case "memory":
            # People ask through the gateway, each time for an answer in this corner of its inboxes.
            to_people = f"{inbox_of(GATEWAY_SENDER)}.*.{ANSWERS}.*"
            publish += [*bus.answers(role), *bus.blobs(), *bus.quarantine(), *bus.file_reads(), to_people]
            subscribe += [topology.subject(Subject.MEMORY)]
        case "tracer":
            publish += [*bus.journal_reads(), *bus.blob_reads()]
        case "gateway":
            publish += [*bus.journal_reads(), *bus.blobs(), *bus.as_gateway()]
            subscribe += [topology.below(Subject.DELTA)]
    return Permissions(publish, subscribe, never)


class _Bus:
    """The permissions that several roles share, by what they are for."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._shards = [topology.stream(shard) for shard in range(topology.shards)]
        self._blob_bucket = topology.blob_bucket
        self._object = f"OBJ_{topology.blob_bucket}"
        self._buckets = [
            f"KV_{topology.registry_bucket}",
            f"KV_{topology.sessions_bucket}",
            self._object,
        ]

    def infos(self) -> list[str]:
        """Subjects to ask whether all streams are there, and whether shards are added."""
        topology = self._topology
        streams = [
            *self._shards,
            topology.stream(topology.shards),
            topology.dead_stream,
            topology.automation_stream,
            topology.audit_stream,
        ]
        streams += self._buckets
        return ["$JS.API.INFO", *(f"$JS.API.STREAM.INFO.{stream}" for stream in streams)]

    def pulls(self, role: Role) -> list[str]:
        """Subjects to pull from the role's own queues, on every shard: no other consumer has their names."""
        names = [consumer.name for consumer in consumers(role, self._topology)]
        if role.kind == "agent":
            # Those of its revisions are made and removed by the gateways, as rollouts come and go.
            names += [self._topology.agent_consumer(role.name, slot) for slot in range(1, SLOTS + 1)]
        return [
            f"{what}.{name}{rest}"
            for name in names
            for what, rest in (
                ("$JS.API.CONSUMER.INFO.*", ""),
                ("$JS.API.CONSUMER.MSG.NEXT.*", ""),
                ("$JS.ACK.*", ".>"),
            )
        ]

    def presences(self, role: Role) -> list[str]:
        """Return the subjects of the service's heartbeats."""
        topology = self._topology
        keys = [topology.presence_key("tool", tool, "*") for tool in tools_of(role)]
        if role.kind in ("agent", "sandbox"):
            keys.append(topology.presence_key(role.kind, role.name, "*"))
        return [f"$KV.{topology.registry_bucket}.{key}" for key in keys]

    def journal_reads(self) -> list[str]:
        """Subjects to read whole shards: neither form can be narrowed to a subject."""
        return [f"$JS.API.{how}.{shard}" for how in ("STREAM.MSG.GET", "DIRECT.GET") for shard in self._shards]

    def blob_reads(self) -> list[str]:
        """Subjects to read blobs."""
        return [f"$JS.API.STREAM.MSG.GET.{self._object}", f"$JS.API.DIRECT.GET.{self._object}"]

    def blobs(self) -> list[str]:
        """Subjects to read and write blobs."""
        return [*self.blob_reads(), f"$O.{self._blob_bucket}.>"]

    def quarantine(self) -> list[str]:
        """Subjects of the records of messages that may crash their workers."""
        return self._kept(Subject.QUARANTINE)

    def tallies(self) -> list[str]:
        """Subjects of the calls that several runs count together."""
        return self._kept(Subject.TALLY)

    def effects(self, role: Role) -> list[str]:
        """Return the subjects of the claims of calls of the role's own tools."""
        return [subject for tool in role.tools for subject in self._kept(Subject.EFFECT, tool=tool)]

    def seed(self, role: Role) -> list[str]:
        """Subjects of the secret of its pool."""
        subject = self._topology.subject(Subject.SEED, shard=0, pool=role.name)
        return [subject, f"$JS.API.DIRECT.GET.{self._shards[0]}.{subject}"]

    def files(self) -> list[str]:
        """Subjects of the files of workspaces."""
        return self._kept(Subject.FILE)

    def file_reads(self) -> list[str]:
        """Subjects to read the files of workspaces."""
        return self._reads(Subject.FILE)

    def answers(self, role: Role) -> list[str]:
        """Subjects of answers to any run, in the name of these tools only."""
        return [self._topology.below(Subject.INBOX, sender=tool) for tool in tools_of(role)]

    @staticmethod
    def replies_among_replicas(role: Role) -> list[str]:
        """Answers to questions that only replicas of the service itself ask.

        The server's own `allow_responses` is not used: a user that asks itself could then publish anywhere.
        """
        return [f"{inbox_of(role.user)}.>"]

    def as_agent(self, role: Role) -> list[str]:
        """Subjects that only agents publish to: journals, members' inboxes, calls, timers, questions about queues."""
        topology, name = self._topology, role.name
        calls = (
            [topology.below(Subject.CALL, sender=name)]
            if role.calls is None
            else [topology.below(Subject.CALL, tool=tool, sender=name) for tool in role.calls]
        )
        return [
            topology.below(Subject.JOURNAL, shard="*"),
            topology.below(Subject.INBOX, sender=name),
            *self._passed_on(name),
            *calls,
            topology.subject(Subject.CODE),
            topology.below(Subject.TIMER, run="*"),
            topology.subject(Subject.EFFECT, agent=name),
            topology.subject(Subject.DELTA),
            topology.subject(Subject.CHUNK),
            topology.interrupts,
            *(f"$JS.API.CONSUMER.INFO.{shard}.*" for shard in self._shards),
        ]

    def _passed_on(self, agent: str) -> list[str]:
        """Return the subjects to pass a message on, from any sender, to the agent's other revisions."""
        receivers = [slot_receiver(agent, slot) for slot in range(1, SLOTS + 1)]
        return [self._topology.below(Subject.INBOX, agent=receiver) for receiver in receivers]

    def as_gateway(self) -> list[str]:
        """Subjects to start, import and erase runs and to read everything; it makes and removes no stream."""
        topology, sessions, dead = self._topology, self._topology.sessions_bucket, self._topology.dead_stream
        readers = [
            f"$JS.API.CONSUMER.{what}.{shard}.*"
            for what in ("CREATE", "DELETE", "INFO", "MSG.NEXT")
            for shard in self._shards
        ]
        removals = [f"$JS.API.STREAM.MSG.DELETE.{stream}" for stream in (*self._shards, dead)]
        exchanges = exchange_stream(topology.prefix)
        purges = [*self._shards, f"KV_{sessions}", self._object, exchanges]
        return [
            *map(topology.below, Subject.STORED),
            topology.subject(Subject.MEMORY),
            topology.interrupts,
            *readers,
            *removals,
            *(f"$JS.API.CONSUMER.LIST.{shard}" for shard in self._shards),
            *(f"$JS.API.STREAM.PURGE.{stream}" for stream in purges),
            f"$JS.API.STREAM.INFO.{exchanges}",
            *(f"$JS.API.{how}.{dead}" for how in ("STREAM.MSG.GET", "DIRECT.GET")),
            f"$JS.API.STREAM.MSG.GET.KV_{sessions}",
            f"$KV.{sessions}.>",
            *self._automations(),
            rollout_key(topology.registry_bucket),
            f"$KV.{topology.registry_bucket}.{topology.presence_key('agent', '*', AT_REST)}",
            f"$KV.{topology.registry_bucket}.{topology.presence_key('*', '*', RETIRED)}",
            f"$JS.API.STREAM.MSG.GET.KV_{topology.registry_bucket}",
            topology.subject(Subject.AUDIT),
            f"$JS.API.DIRECT.GET.{topology.audit_stream}",
        ]

    def _automations(self) -> list[str]:
        """Subjects to keep schedules, triggers and notices, and to have the server wake their handlers."""
        stream = self._topology.automation_stream
        return [
            *self._topology.automation_subjects,
            *(f"$JS.API.{how}.{stream}" for how in ("STREAM.MSG.GET", "DIRECT.GET", "STREAM.PURGE")),
            f"$JS.API.STREAM.MSG.DELETE.{stream}",
            f"$JS.ACK.*.{self._topology.notices_consumer()}.>",
        ]

    def _kept(self, template: str, **tokens: str) -> list[str]:
        """Subjects to write to those of the template, and to read the last message of each."""
        return [self._topology.subject(template, **tokens), *self._reads(template, **tokens)]

    def _reads(self, template: str, **tokens: str) -> list[str]:
        """Subjects to read the last message of each subject of the template."""
        subject = self._topology.subject(template, **tokens)
        return [f"$JS.API.DIRECT.GET.{shard}.{subject}" for shard in self._shards]


_SCHEMES = ("nats", "tls")


def addresses(text: str) -> list[str]:
    """The address of each server of a cluster. Raises SettingError."""
    return [_whole(one.strip()).geturl() for one in text.split(",")]


def redacted(text: str) -> str:
    """The addresses for people and logs: without user and password. Raises SettingError."""
    parts = [_whole(one.strip()) for one in text.split(",")]
    return ",".join(one._replace(netloc=one.netloc.rpartition("@")[2]).geturl() for one in parts)


def _whole(text: str) -> SplitResult:
    address = urlsplit(text if "://" in text else f"nats://{text}")
    try:
        usable = address.scheme in _SCHEMES and bool(address.hostname) and address.port != 0
    except ValueError:  # of the port
        usable = False
    if not usable:
        # It may have a password: not repeated.
        raise SettingError(
            "CADRE_NATS_URL: must be the address of a NATS server such as nats://127.0.0.1:4222 (or tls://…), or"
            " several with commas between them"
        )
    return address

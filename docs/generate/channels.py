"""The subjects that a service may publish to or read, with what lies there and who does what."""

from typing import NamedTuple, get_args

import msgspec

from cadre.journal.entry import Entry
from cadre.protocol.cards import Presence
from cadre.protocol.deltas import Delta, StreamChunk
from cadre.protocol.files import WorkspaceFile
from cadre.protocol.messages import (
    Cancel,
    CodeCall,
    CodeFinished,
    CodeYielded,
    Decision,
    Edit,
    EffectClaim,
    EffectResult,
    Record,
    Report,
    Signal,
    Spilled,
    Task,
    TimerFired,
    ToolCall,
    ToolResult,
    UserMessage,
)
from cadre.protocol.topology import Subject, Topology

Messages = tuple[type[msgspec.Struct], ...]

_MANY = 1_000_003
"""Shards of a topology whose shard number is sure to stand for itself in a subject."""

_topology = Topology(_MANY, "{prefix}")
_shard = str(_topology.shard("{tree}"))


class Channel(NamedTuple):
    name: str
    address: str
    kind: str
    """stream, bucket or core (not stored)."""
    summary: str
    messages: Messages
    """Empty where the payload is plain text."""


class Operation(NamedTuple):
    name: str
    action: str
    """send or receive."""
    channel: str
    summary: str
    messages: Messages = ()
    """Those of the channel's that it is about; all unless given."""


PARAMETERS = {
    "prefix": "Prefix of the deployment, `cadre` unless CADRE_PREFIX says otherwise.",
    "shard": "`crc32(tree) mod shards` of the tree's generation, in decimal; streams have its number as metadata.",
    "tree": "Id of the root run: the part of a run's id before its first underscore.",
    "run": "Id of the run.",
    "call": "Id of the call, `<run>_<step>_<index>`; for a delegation it is the id of the child run too.",
    "path": "BLAKE2b digest (16 bytes, in hex) of a file's path.",
    "agent": "Name of the agent whose inbox it is.",
    "tool": "Name of the tool.",
    "pool": "Name of the pool of sandboxes.",
    "sender": "Agent or tool that sends, `gateway` for the gateway, `timer` for a timer that went off.",
    "verb": "`search`, `list`, `show`, `forget`, `export` or `stats`.",
    "name": "Name of the timer; in the registry, of the agent, tool or sandbox pool.",
    "kind": "`agent`, `tool` or `sandbox`.",
    "instance": "Name of the replica.",
}


def _address(subject: str) -> str:
    return subject.replace(f".{_shard}.", ".{shard}.")


CHANNELS = (
    Channel(
        "journal",
        _address(_topology.journal("{tree}", "{run}")),
        "stream",
        "The history of one run. Each append is fenced by the sequence of the entry before it.",
        (Entry, Spilled),
    ),
    Channel(
        "inbox",
        _address(_topology.inbox("{agent}", "{sender}", "{tree}", "{run}")),
        "stream",
        "Records for the runs of an agent. One durable pull consumer per agent and shard, shared by its replicas.",
        (*get_args(Record), Spilled),
    ),
    Channel(
        "call",
        _address(_topology.call("{tool}", "{sender}", "{tree}", "{call}")),
        "stream",
        "Calls of a tool. One durable pull consumer per tool and shard, shared by its executors.",
        (ToolCall, Spilled),
    ),
    Channel(
        "code",
        _address(_topology.code("{pool}", "{tree}", "{run}")),
        "stream",
        "Blocks of code. One durable pull consumer per pool and shard, shared by its sandboxes.",
        (CodeCall, Spilled),
    ),
    Channel(
        "warm",
        _topology.warm("{pool}", "{tree}", "{run}"),
        "core",
        "Whether a sandbox keeps the run's interpreter: a request with the bytes of a delivered CodeCall, the reply"
        " subject of that delivery in the header `Cadre-Ack`, its own in `Cadre-Subject`. `+`: the delivery has"
        " been taken over, ack included. May be lost.",
        (CodeCall, Spilled),
    ),
    Channel(
        "effect",
        _address(_topology.effect("{tree}", "{call}", "{agent}", "{tool}")),
        "stream",
        "Who runs a call that may change the world, then what came of it: a claim with fence 0, a result fenced by it."
        " Or a result alone, with fence 0: the agent has taken the call back.",
        (EffectClaim, EffectResult),
    ),
    Channel(
        "executor",
        _topology.executor("{tool}", "{instance}"),
        "core",
        "Whether an executor is at work on a call that it has claimed: a request with the call's id as plain text."
        " `+`: it is; `-`: not, or not any more.",
        (),
    ),
    Channel(
        "file",
        _address(_topology.subject(Subject.FILE, tree="{tree}", digest="{path}")),
        "stream",
        "What a path of a tree's workspace holds; each version takes the place of the last, fenced by it.",
        (WorkspaceFile,),
    ),
    Channel(
        "timer",
        _address(_topology.timer("{tree}", "{run}", "{name}")),
        "stream",
        "Message schedules of the server, aimed at an inbox.",
        (TimerFired,),
    ),
    Channel(
        "delta",
        _topology.delta("{tree}", "{run}"),
        "core",
        "Pieces of a model's answer while it is written. May be lost.",
        (Delta,),
    ),
    Channel(
        "chunk",
        _topology.chunk("{tree}", "{run}"),
        "core",
        "The stream of an answer to a program's own model request, while it comes. May be lost.",
        (StreamChunk,),
    ),
    Channel(
        "interrupt",
        _topology.interrupt("{tree}"),
        "core",
        "The id of a run or call that ended early, as plain text, or of a model call that is needless,"
        " `<run>:model:<purpose>:<step>:<attempt>`: whoever works for it may stop. May be lost.",
        (),
    ),
    Channel(
        "memory",
        _topology.memory("{verb}"),
        "core",
        "What people ask of the memory service: a request, one reply. Its bodies are in `cadre.protocol.memory`.",
        (),
    ),
    Channel(
        "registry",
        f"$KV.{_topology.registry_bucket}.{_topology.presence_key('{kind}', '{name}', '{instance}')}",
        "bucket",
        "One key per live replica of an agent, tool or sandbox, renewed every few seconds, gone soon after the last.",
        (Presence,),
    ),
)

OPERATIONS = (
    Operation("agentReceivesRecords", "receive", "inbox", "An agent service takes records for its runs."),
    Operation("agentAppendsEntries", "send", "journal", "An agent service tells what a record made true."),
    Operation("agentCallsTools", "send", "call", "An agent service asks for a tool to be run."),
    Operation("agentSendsCode", "send", "code", "An agent service has code run, or go on with its calls' results."),
    Operation("agentDelegates", "send", "inbox", "An agent service starts a child run, or ends it.", (Task, Cancel)),
    Operation("agentReports", "send", "inbox", "An agent service tells a parent how its child ended.", (Report,)),
    Operation("agentSetsTimers", "send", "timer", "An agent service has itself woken later."),
    Operation("agentTellsDeltas", "send", "delta", "An agent service passes on what its model writes."),
    Operation("agentInterrupts", "send", "interrupt", "An agent service tells that a run ended early."),
    Operation(
        "workerHearsInterrupts",
        "receive",
        "interrupt",
        "Agent and tool services drop work that nobody needs.",
    ),
    Operation("executorReceivesCalls", "receive", "call", "A tool service takes calls."),
    Operation("executorClaims", "send", "effect", "A tool service claims a call with effects, and settles it."),
    Operation("agentRevokesCalls", "send", "effect", "An agent service settles a call that nobody awaits any more."),
    Operation(
        "executorAsksClaimer",
        "send",
        "executor",
        "A tool service that finds a call claimed asks the claimer whether it still works on it.",
    ),
    Operation("executorAnswersPeers", "receive", "executor", "A tool service tells what it has in hand."),
    Operation("executorWritesFiles", "send", "file", "A tool writes a file of its run's workspace."),
    Operation("gatewayReadsFiles", "receive", "file", "The gateway knows which files and blobs belong to a run."),
    Operation("gatewayWritesFiles", "send", "file", "The gateway passes on the files that people give a run."),
    Operation("executorAnswers", "send", "inbox", "A tool service sends a result.", (ToolResult,)),
    Operation("sandboxReceivesCode", "receive", "code", "A sandbox takes blocks of code."),
    Operation("sandboxHandsCodeOver", "send", "warm", "A sandbox offers code to the one that keeps the interpreter."),
    Operation("sandboxTakesCodeOver", "receive", "warm", "A sandbox goes on with code that another was delivered."),
    Operation(
        "sandboxAnswers",
        "send",
        "inbox",
        "A sandbox tells what the code calls, and how it ended.",
        (CodeYielded, CodeFinished),
    ),
    Operation("gatewayAsksMemory", "send", "memory", "The gateway passes on what people ask of memories."),
    Operation("memoryAnswers", "receive", "memory", "A memory service answers people's requests."),
    Operation("replicaAnnounces", "send", "registry", "Every replica keeps its keys alive."),
    Operation("replicaHearsReplicas", "receive", "registry", "Every service keeps a view of who is there."),
    Operation(
        "gatewaySubmits",
        "send",
        "inbox",
        "The gateway starts and cancels root runs, and passes on what people decide.",
        (Task, Cancel, Decision, Signal, UserMessage, Edit),
    ),
    Operation("gatewayReadsJournals", "receive", "journal", "The gateway lists, shows and streams runs."),
    Operation("tracerFollowsJournals", "receive", "journal", "A tracer exports the spans that an entry ends."),
    Operation(
        "agentTellsChunks",
        "send",
        "chunk",
        "An agent service passes on a stream that a program has asked for.",
    ),
    Operation("programHearsChunks", "receive", "chunk", "A program host passes the stream on to its program."),
    Operation("gatewayHearsDeltas", "receive", "delta", "The gateway passes deltas on to whoever looks on."),
)

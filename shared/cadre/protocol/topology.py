"""Every subject, stream, consumer, bucket and derived id: the one file that knows the topology."""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple
from zlib import crc32

DEFAULT_PREFIX = "cadre"


class Address(NamedTuple):
    """What the subject of a message in a queue says of it: permissions have proved the sender."""

    kind: str
    """`in`, `call`, `code`, or `run` for an entry of a journal."""
    receiver: str
    """The agent, tool or pool in whose queue the message lies; empty for journals."""
    sender: str
    """The agent, tool or service that sent it; empty where the subject names none, as for code and journals."""
    tree: str
    leaf: str
    """The call for a `call`, else the run."""


class Topology:
    """The names of one deployment: a prefix, and over how many streams its trees are spread.

    `shards` is fixed when the streams are created (it is kept in their metadata): a tree lives in
    the shard `crc32(tree) % shards` for ever.
    """

    def __init__(self, shards: int, prefix: str = DEFAULT_PREFIX) -> None:
        self.shards = shards
        self.prefix = prefix

    # --- streams and buckets

    def stream(self, shard: int) -> str:
        return f"{self.prefix.upper()}-{shard}"

    def stream_of(self, tree: str) -> str:
        return self.stream(self.shard(tree))

    def stream_subjects(self, shard: int) -> list[str]:
        return [
            f"{self.prefix}.{kind}.{shard}.>" for kind in ("run", "in", "call", "code", "effect", "timer")
        ]

    @property
    def dead_stream(self) -> str:
        return f"{self.prefix.upper()}-DEAD"

    @property
    def dead_subjects(self) -> list[str]:
        """What the server says of messages that nobody could handle, and of those given up with a reason."""
        return [
            f"$JS.EVENT.ADVISORY.CONSUMER.{what}.{self.stream(shard)}.*"
            for what in ("MAX_DELIVERIES", "MSG_TERMINATED")
            for shard in range(self.shards)
        ]

    @property
    def registry_bucket(self) -> str:
        return f"{self.prefix}-registry"

    @property
    def sessions_bucket(self) -> str:
        return f"{self.prefix}-sessions"

    @property
    def blob_bucket(self) -> str:
        return f"{self.prefix}-blobs"

    # --- subjects

    def shard(self, tree: str) -> int:
        return crc32(tree.encode()) % self.shards

    def journal(self, tree: str, run: str) -> str:
        return f"{self.prefix}.run.{self.shard(tree)}.{tree}.{run}"

    def journals_of_tree(self, tree: str) -> str:
        return f"{self.prefix}.run.{self.shard(tree)}.{tree}.>"

    def journals_of_shard(self, shard: int) -> str:
        return f"{self.prefix}.run.{shard}.>"

    def fate(self, tree: str) -> str:
        """Says that a tree was erased or imported, among the journals of its shard: no tree is named so."""
        return f"{self.prefix}.run.{self.shard(tree)}._fate.{tree}"

    @staticmethod
    def is_fate(subject: str) -> bool:
        return subject.split(".")[-2] == "_fate"

    def subjects_of_tree(self, tree: str) -> list[str]:
        """Filters that together find every message of a tree; its journals come last."""
        shard = self.shard(tree)
        return [
            f"{self.prefix}.in.{shard}.*.*.{tree}.>",
            f"{self.prefix}.call.{shard}.*.*.{tree}.>",
            f"{self.prefix}.code.{shard}.*.{tree}.>",
            f"{self.prefix}.effect.{shard}.{tree}.>",
            f"{self.prefix}.timer.{shard}.{tree}.>",
            self.journals_of_tree(tree),
        ]

    def inbox(self, agent: str, sender: str, tree: str, run: str) -> str:
        return f"{self.prefix}.in.{self.shard(tree)}.{agent}.{sender}.{tree}.{run}"

    def inbox_of_run(self, tree: str, run: str) -> str:
        """Everything that was sent to a run, by whomever, to whichever agent it belongs."""
        return f"{self.prefix}.in.{self.shard(tree)}.*.*.{tree}.{run}"

    def inbox_filter(self, shard: int, agent: str) -> str:
        return f"{self.prefix}.in.{shard}.{agent}.>"

    def call(self, tool: str, sender: str, tree: str, call: str) -> str:
        return f"{self.prefix}.call.{self.shard(tree)}.{tool}.{sender}.{tree}.{call}"

    def call_filter(self, shard: int, tool: str) -> str:
        return f"{self.prefix}.call.{shard}.{tool}.>"

    def code(self, pool: str, tree: str, run: str) -> str:
        return f"{self.prefix}.code.{self.shard(tree)}.{pool}.{tree}.{run}"

    def warm(self, pool: str, tree: str, run: str) -> str:
        """Where the sandbox that keeps the run's interpreter is found, if one does."""
        return f"{self.prefix}.warm.{pool}.{tree}.{run}"

    def code_filter(self, shard: int, pool: str) -> str:
        return f"{self.prefix}.code.{shard}.{pool}.>"

    def executor(self, tool: str, instance: str) -> str:
        """Where an executor of the tool is asked whether it is at work on a call."""
        return f"{self.prefix}.executor.{tool}.{instance}"

    @staticmethod
    def code_consumer(pool: str) -> str:
        return f"code-{pool}"

    def effect(self, tree: str, call: str) -> str:
        return f"{self.prefix}.effect.{self.shard(tree)}.{tree}.{call}"

    def trial(self, tree: str, seq: int) -> str:
        """Holds what is held against the message at `seq`, beside the effects of its tree."""
        return f"{self.prefix}.effect.{self.shard(tree)}.{tree}._trial.{seq}"

    def file(self, tree: str, path: str) -> str:
        """Says what a path of the tree's workspace holds, beside the effects of the tree."""
        digest = blake2b(path.encode(), digest_size=16).hexdigest()
        return f"{self.prefix}.effect.{self.shard(tree)}.{tree}._file.{digest}"

    def files_of_tree(self, tree: str) -> str:
        return f"{self.prefix}.effect.{self.shard(tree)}.{tree}._file.*"

    def files_of_shard(self, shard: int) -> str:
        return f"{self.prefix}.effect.{shard}.*._file.*"

    @staticmethod
    def tree_of_file(subject: str) -> str | None:
        """The tree whose file a subject is about; None for any other subject."""
        parts = subject.split(".")
        return parts[-3] if len(parts) > 3 and parts[-2] == "_file" else None

    def timer(self, tree: str, run: str, name: str) -> str:
        return f"{self.prefix}.timer.{self.shard(tree)}.{tree}.{run}.{name}"

    def delta(self, tree: str, run: str) -> str:
        return f"{self.prefix}.delta.{tree}.{run}"

    def deltas_of_tree(self, tree: str) -> str:
        return f"{self.prefix}.delta.{tree}.*"

    def interrupt(self, tree: str) -> str:
        return f"{self.prefix}.interrupt.{tree}"

    @property
    def interrupts(self) -> str:
        return f"{self.prefix}.interrupt.*"

    def memory(self, verb: str) -> str:
        """Where people's requests to the memory service go, answered over core NATS."""
        return f"{self.prefix}.memory.{verb}"

    def fates_filter(self, shard: int) -> str:
        """What is recorded of whole trees: that they were erased or imported."""
        return f"{self.prefix}.run.{shard}._fate.>"

    # --- consumers and registry keys

    @staticmethod
    def agent_consumer(agent: str) -> str:
        return f"agent-{agent}"

    @staticmethod
    def tool_consumer(tool: str) -> str:
        return f"tool-{tool}"

    @staticmethod
    def tracer_consumer() -> str:
        """Of the journals themselves: its name is none that an agent, a tool or a pool could have."""
        return "tracer"

    @staticmethod
    def fates_consumer(service: str) -> str:
        """Of a service that keeps something of trees elsewhere and must hear of their end."""
        return f"fates-{service}"

    @staticmethod
    def presence_key(kind: str, name: str, instance: str) -> str:
        return f"{kind}.{name}.{instance}"

    @staticmethod
    def parse(subject: str) -> tuple[str, str]:
        """The (tree, run or call) that a journal, inbox, call, code or effect subject ends in."""
        tree, leaf = subject.split(".")[-2:]
        return tree, leaf

    @staticmethod
    def address(subject: str) -> Address:
        """What an inbox, call, code or journal subject says. Raises ValueError for a subject of no such form."""
        _, kind, _, *named = subject.split(".")
        *queue, tree, leaf = named
        receiver, sender = (*queue, "", "")[:2]
        return Address(kind, receiver, sender, tree, leaf)

    @staticmethod
    def sender(subject: str) -> str:
        """Who sent what lies in an inbox or a tool's queue."""
        return subject.split(".")[-3]


# --- derived ids: the same decision always gets the same id, so publishing it again is harmless


def tree_of(run: str) -> str:
    """The tree of a run or call: root ids hold no underscore."""
    return run.partition("_")[0]


def parent_of(run: str) -> str | None:
    """The run that started a child run; None for a root."""
    parent = run.rsplit("_", 2)[0]
    return parent if parent != run else None


def is_within(run: str, top: str) -> bool:
    """Whether a run or call is `top` itself, or belongs to a run below it."""
    return run == top or run.startswith(f"{top}_")


def call_id(run: str, step: int, index: int) -> str:
    """Id of call `index` (from 0) of step `step` (from 1); also the id of the child run it starts."""
    return f"{run}_{step}_{index}"


def block_id(run: str, step: int) -> str:
    """Id of the block of code of a step."""
    return f"{run}:code:{step}"


def code_call_id(block: str, exchange: int) -> str:
    """Id of the message that has a sandbox run the block, or go on with it after so many exchanges."""
    return f"{block}:{exchange}"


def task_id(run: str) -> str:
    return f"{run}:task"


def result_id(call: str) -> str:
    return f"{call}:result"


def report_id(child: str) -> str:
    return f"{child}:report"


def timer_id(run: str, name: str) -> str:
    return f"{run}:{name}"


def cancel_id(run: str) -> str:
    """Id of the cancel that a parent sends to its child `run`."""
    return f"{run}:cancel"

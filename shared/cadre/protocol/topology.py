"""Every stream, consumer, bucket, subject and derived id of one deployment, and the generations of its shards: the
id of a tree says in which one it began, so it stays when shards are added."""

import functools
from collections.abc import Sequence
from hashlib import blake2b, sha256
from typing import NamedTuple
from zlib import crc32

from cadre.errors import RetryableError
from cadre.protocol.rollout import slot_of, slot_receiver


class Subject:
    """Every subject behind the prefix: words stand for themselves, names in braces for what varies."""

    JOURNAL = "run.{shard}.{tree}.{run}"
    LIFECYCLE = "run.{shard}._lifecycle.{tree}"
    """Says that a tree was erased or imported, among the journals of its shard: no tree is named so."""
    INBOX = "in.{shard}.{agent}.{sender}.{tree}.{run}"
    CALL = "call.{shard}.{tool}.{sender}.{tree}.{call}"
    CODE = "code.{shard}.{pool}.{tree}.{run}"
    EFFECT = "effect.{shard}.{tree}.{call}.{agent}.{tool}"
    QUARANTINE = "effect.{shard}.{tree}._trial.{seq}"
    """Failed attempts at the message at a sequence, stored with the effects of its tree."""
    START = "effect.{shard}.{tree}._start"
    """Holds the generation in which the run of a key begins, where the tree of the first one would have its effects."""
    FILE = "effect.{shard}.{tree}._file.{digest}"
    """The current content of a path in the tree's workspace, stored with the effects of the tree."""
    TALLY = "effect.{shard}.{tree}._tally.{name}"
    """Calls that several runs count together; those of a user's day are stored as those of a tree of no run."""
    SEED = "effect.{shard}._pool._seed.{pool}"
    """The secret seed of a pool's random numbers, stored with the effects; no tree has this name."""
    TIMER = "timer.{shard}.{tree}.{run}.{name}"
    STORED = (JOURNAL, INBOX, CALL, CODE, EFFECT, TIMER)
    """All subjects of a shard's stream."""

    DEFINITION = "automation.{kind}.{name}"
    """A schedule, trigger, notice or budget, or a file or conversation that a client keeps; outside the shards, in the
    automation stream."""
    TICK = "automation.tick.schedule.{name}"
    """Holds the message that the server delivers when a schedule is due."""
    DUE = "automation.due.schedule.{name}"
    DELIVERY = "automation.delivery.{notice}.{id}"
    """Holds a webhook to send."""
    RETRY = "automation.retry.{notice}.{id}"
    """Holds one that the server delivers again later."""
    AUTOMATION_TRIAL = "automation.trial.message.{seq}"
    """Holds what is held against the tick, event or delivery at a sequence."""
    EVENT = "event.{subject}"
    """An event from outside that starts triggers; `subject` may be several tokens."""

    DELTA = "delta.{tree}.{run}"
    CHUNK = "chunk.{tree}.{run}"
    AUDIT = "audit.{action}"
    """An action at a gateway, kept in the audit stream, which has no consumers."""
    INTERRUPT = "interrupt.{tree}"
    MEMORY = "memory.{verb}"
    """Requests to the memory service, answered over core NATS."""
    WARM = "warm.{pool}.{tree}.{run}"
    """Requests to the sandbox that keeps the run's interpreter warm."""
    EXECUTOR = "executor.{tool}.{instance}"
    """Asks an executor of the tool whether it is working on a call."""


def exchange_stream(prefix: str) -> str:
    """The stream of a deployment's prompts, on the server where the agents are."""
    return f"{prefix.upper()}-REMOTE"


def exchange_subject(prefix: str, agent: str, task: str) -> str:
    """The subject below which all that was said of a task lies; `*` stands for any agent."""
    return f"{prefix}.remote.{agent}.{task}"


DEFAULT_PREFIX = "cadre"


class Address(NamedTuple):
    """The address that the subject of a message in a queue gives: permissions have proved the sender."""

    kind: str
    """`in`, `call`, `code`, or `run` for an entry of a journal."""
    receiver: str
    """The agent, tool or pool in whose queue the message lies; empty for journals."""
    sender: str
    """The agent, tool or service that sent it; empty where the subject names none, as for code and journals."""
    tree: str
    leaf: str
    """The call for a `call`, else the run."""
    slot: int = 0
    """The queue of the agent's revisions that it lies in; 0 for all other queues."""


class _Tokens(dict[str, str | int]):
    def __missing__(self, name: str) -> str:
        return "*"


class Topology:
    """The names of one deployment: a prefix, and over how many streams its trees are spread.

    `shards` is the number of shards in each generation, the newest last, or in the only one; the streams' metadata has
    it. A tree lives in the shard `crc32(tree) % shards of its generation` for ever.
    """

    def __init__(self, shards: int | Sequence[int], prefix: str = DEFAULT_PREFIX) -> None:
        self.layout = Layout((shards,) if isinstance(shards, int) else tuple(shards))
        """May be replaced while the process works: a deployment grows."""
        self.prefix = prefix
        self.journal = functools.lru_cache(maxsize=1024)(self._journal)

    # --- streams and buckets

    @property
    def shards(self) -> int:
        """Return the number of streams that hold trees, or soon will."""
        return self.layout.shards

    @property
    def newest(self) -> int:
        """Return the number of the generation, from 0, in which new trees begin."""
        return len(self.layout.generations) - 1

    def knows(self, tree: str) -> bool:
        """Return False for a tree of a generation that is not known here."""
        return generation_of(tree) <= self.newest

    def stream(self, shard: int) -> str:
        return f"{self.prefix.upper()}-{shard}"

    def stream_of(self, tree: str) -> str:
        return self.stream(self.shard(tree))

    def stream_subjects(self, shard: int) -> list[str]:
        """Return what the stream of the shard takes in."""
        return [self.below(template, shard=shard) for template in Subject.STORED]

    @property
    def dead_stream(self) -> str:
        return f"{self.prefix.upper()}-DEAD"

    @property
    def dead_subjects(self) -> list[str]:
        """Return the subjects on which the server reports unhandled messages, and those given up with a reason."""
        return [
            f"$JS.EVENT.ADVISORY.CONSUMER.{what}.{stream}.*"
            for what in ("MAX_DELIVERIES", "MSG_TERMINATED")
            for stream in (*map(self.stream, range(self.shards)), self.automation_stream)
        ]

    @property
    def automation_stream(self) -> str:
        """The stream of schedules, triggers and notices, and of what is due for them."""
        return f"{self.prefix.upper()}-AUTOMATION"

    @property
    def automation_subjects(self) -> list[str]:
        return [f"{self.prefix}.automation.>", self.below(Subject.EVENT)]

    @property
    def audit_stream(self) -> str:
        """The stream of what was done at the gateways, and by whom."""
        return f"{self.prefix.upper()}-AUDIT"

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
        """Return the shard in which a tree lives. Raises UnknownGeneration."""
        generation, shards = generation_of(tree), self.layout.generations
        if generation >= len(shards):
            raise UnknownGeneration(tree)
        return crc32(tree.encode()) % shards[generation]

    def subject(self, template: str, **tokens: str | int) -> str:
        """Return the subject that a template becomes with these tokens: `*` for those that are not given, the shard
        of the tree where that is."""
        if "tree" in tokens and "shard" not in tokens:
            tokens["shard"] = self.shard(str(tokens["tree"]))
        try:
            return f"{self.prefix}.{template.format_map(tokens)}"
        except KeyError:
            return f"{self.prefix}.{template.format_map(_Tokens(tokens))}"

    def below(self, template: str, **tokens: str | int) -> str:
        """Return the filter of all subjects that begin as the template does, up to its last word or given token."""
        parts = template.split(".")
        while parts[-1].startswith("{") and parts[-1][1:-1] not in tokens:
            parts.pop()
        return f"{self.subject('.'.join(parts), **tokens)}.>"

    def _journal(self, tree: str, run: str) -> str:
        return self.subject(Subject.JOURNAL, tree=tree, run=run)

    def journals_of_tree(self, tree: str) -> str:
        return self.below(Subject.JOURNAL, tree=tree)

    def journals_of_shard(self, shard: int) -> str:
        return self.below(Subject.JOURNAL, shard=shard)

    def lifecycle(self, tree: str) -> str:
        return self.subject(Subject.LIFECYCLE, tree=tree)

    def lifecycles_filter(self, shard: int) -> str:
        return self.below(Subject.LIFECYCLE, shard=shard)

    @staticmethod
    def is_lifecycle(subject: str) -> bool:
        return subject.split(".")[-2] == "_lifecycle"

    def subjects_of_tree(self, tree: str) -> list[str]:
        """Filters that together find every message of a tree; its journals come last."""
        return [self.below(template, tree=tree) for template in (*Subject.STORED[1:], Subject.JOURNAL)]

    def inbox(self, agent: str, sender: str, tree: str, run: str) -> str:
        return self.subject(Subject.INBOX, agent=agent, sender=sender, tree=tree, run=run)

    def inbox_of_run(self, tree: str, run: str) -> str:
        """Everything that was sent to a run, by whomever, to whichever agent it belongs."""
        return self.subject(Subject.INBOX, tree=tree, run=run)

    def inbox_filter(self, shard: int, agent: str, slot: int = 0) -> str:
        return self.below(Subject.INBOX, shard=shard, agent=slot_receiver(agent, slot))

    def call(self, tool: str, sender: str, tree: str, call: str) -> str:
        return self.subject(Subject.CALL, tool=tool, sender=sender, tree=tree, call=call)

    def call_filter(self, shard: int, tool: str) -> str:
        return self.below(Subject.CALL, shard=shard, tool=tool)

    def code(self, pool: str, tree: str, run: str) -> str:
        return self.subject(Subject.CODE, pool=pool, tree=tree, run=run)

    def code_filter(self, shard: int, pool: str) -> str:
        return self.below(Subject.CODE, shard=shard, pool=pool)

    def warm(self, pool: str, tree: str, run: str) -> str:
        return self.subject(Subject.WARM, pool=pool, tree=tree, run=run)

    def executor(self, tool: str, instance: str) -> str:
        return self.subject(Subject.EXECUTOR, tool=tool, instance=instance)

    def effect(self, tree: str, call: str, agent: str, tool: str) -> str:
        return self.subject(Subject.EFFECT, tree=tree, call=call, agent=agent, tool=tool)

    def store_probe(self, shard: int) -> str:
        """Return where services try out whether a shard stores: among the records of the quarantine, of no tree."""
        return self.subject(Subject.QUARANTINE, shard=shard, tree="_store", seq=0)

    def quarantine(self, tree: str, seq: int) -> str:
        return self.subject(Subject.QUARANTINE, tree=tree, seq=seq)

    def tally(self, tree: str, name: str) -> str:
        return self.subject(Subject.TALLY, tree=tree, name=name)

    def file(self, tree: str, path: str) -> str:
        digest = blake2b(path.encode(), digest_size=16).hexdigest()
        return self.subject(Subject.FILE, tree=tree, digest=digest)

    def start_claim(self, tree: str) -> str:
        return self.subject(Subject.START, tree=tree)

    def files_of_shard(self, shard: int) -> str:
        return self.subject(Subject.FILE, shard=shard)

    @staticmethod
    def tree_of_file(subject: str) -> str | None:
        """The tree whose file a subject is about; None for any other subject."""
        parts = subject.split(".")
        return parts[-3] if len(parts) > 3 and parts[-2] == "_file" else None

    def timer(self, tree: str, run: str, name: str) -> str:
        return self.subject(Subject.TIMER, tree=tree, run=run, name=name)

    def delta(self, tree: str, run: str) -> str:
        return self.subject(Subject.DELTA, tree=tree, run=run)

    def chunk(self, tree: str, run: str) -> str:
        return self.subject(Subject.CHUNK, tree=tree, run=run)

    def interrupt(self, tree: str) -> str:
        return self.subject(Subject.INTERRUPT, tree=tree)

    @property
    def interrupts(self) -> str:
        return self.subject(Subject.INTERRUPT)

    def memory(self, verb: str) -> str:
        return self.subject(Subject.MEMORY, verb=verb)

    def definition(self, kind: str, name: str) -> str:
        return self.subject(Subject.DEFINITION, kind=kind, name=name)

    def definitions(self, kind: str) -> str:
        return self.subject(Subject.DEFINITION, kind=kind)

    def tick(self, schedule: str) -> str:
        return self.subject(Subject.TICK, name=schedule)

    def due(self, schedule: str) -> str:
        return self.subject(Subject.DUE, name=schedule)

    # --- consumers and registry keys

    @staticmethod
    def agent_consumer(agent: str, slot: int = 0) -> str:
        return f"agent-{slot_receiver(agent, slot)}"

    @staticmethod
    def code_consumer(pool: str) -> str:
        return f"code-{pool}"

    @staticmethod
    def tool_consumer(tool: str) -> str:
        return f"tool-{tool}"

    @staticmethod
    def tracer_consumer() -> str:
        """The consumer of the journals themselves: no agent, tool or pool could have its name."""
        return "tracer"

    @staticmethod
    def schedules_consumer() -> str:
        """The consumer of the schedules that are due."""
        return "schedules"

    @staticmethod
    def events_consumer() -> str:
        """The consumer of the messages that triggers listen to."""
        return "events"

    @staticmethod
    def notices_consumer() -> str:
        """The consumer of the journals from which notices are derived; it is there as long as there are notices."""
        return "notices"

    @staticmethod
    def deliveries_consumer() -> str:
        """The consumer of the webhooks to send."""
        return "deliveries"

    @property
    def events_prefix(self) -> str:
        """Return what stands before the subject that a trigger names."""
        return f"{self.prefix}.event."

    @staticmethod
    def lifecycles_consumer(service: str) -> str:
        """The consumer of a service that keeps something of trees elsewhere and must hear of their end."""
        return f"lifecycles-{service}"

    @staticmethod
    def presence_key(kind: str, name: str, instance: str) -> str:
        return f"{kind}.{name}.{instance}"

    @staticmethod
    def parse(subject: str) -> tuple[str, str]:
        """The (tree, run or call) that a journal, inbox, call or code subject ends in."""
        tree, leaf = subject.split(".")[-2:]
        return tree, leaf

    @staticmethod
    def address(subject: str) -> Address:
        """Return what an inbox, call, code or journal subject says; an event's is about no run, and stands for itself.
        Raises ValueError for a subject of no such form.
        """
        _, kind, _, *named = subject.split(".")
        if kind == "event":
            return Address(kind, "", "", subject, subject)
        *queue, tree, leaf = named
        receiver, sender = (*queue, "", "")[:2]
        agent, slot = slot_of(receiver)
        return Address(kind, agent, sender, tree, leaf, slot)


# --- derived ids: the same decision always gets the same id, so publishing it again is harmless


def tree_of(run: str) -> str:
    """The tree of a run or call: root ids hold no underscore."""
    return run.partition("_")[0]


def parent_of(run: str) -> str | None:
    """The run that started a child run; None for a root."""
    parent = run.rsplit("_", 2)[0]
    return parent if parent != run else None


def is_within(run: str, top: str) -> bool:
    """Return whether a run or call is `top` itself, or belongs to a run below it."""
    return run == top or run.startswith(f"{top}_")


def run_id_of(agent: str, owner: str, key: str) -> str:
    """Return the id of the agent's root run that the owner's key stands for, if it begins in the first generation of
    shards. `owner` has no line break."""
    return sha256(f"{agent}\n{owner}\n{key}".encode()).hexdigest()[:32]


def call_id(run: str, step: int, index: int) -> str:
    """Id of call `index` (from 0) of step `step` (from 1); also the id of the child run it starts."""
    return f"{run}_{step}_{index}"


def model_call_id(run: str, purpose: str, step: int, attempt: int) -> str:
    """Id of one attempt at a model call."""
    return f"{run}:model:{purpose}:{step}:{attempt}"


def block_id(run: str, step: int) -> str:
    """Id of the block of code of a step."""
    return f"{run}:code:{step}"


def program_id(run: str) -> str:
    """Id of the block that the program of a run is."""
    return f"{run}:program"


def code_call_id(block: str, exchange: int) -> str:
    """Id of the message that has a sandbox run the block, or go on with it after so many exchanges."""
    return f"{block}:{exchange}"


def task_id(run: str) -> str:
    """Id of the task that begins a run."""
    return f"{run}:task"


def result_id(call: str) -> str:
    """Id of the result of a call."""
    return f"{call}:result"


def report_id(child: str) -> str:
    """Id of the report of a member's run."""
    return f"{child}:report"


def timer_id(run: str, name: str) -> str:
    """Id of a timer of a run."""
    return f"{run}:{name}"


def cancel_id(run: str, *, now: bool = False) -> str:
    """Return the id of the cancel that a parent sends to its child `run`, or of the one that ends it at once."""
    return f"{run}:cancel:now" if now else f"{run}:cancel"


MARKERS = "ghijklmnopqrstuvwxyz"
"""The last characters of tree ids: the first is that of the second generation. Ids of the first one end in a digit."""

ID_LENGTH = 32

MOST_GENERATIONS = 1 + len(MARKERS)
MOST_SHARDS = 256


class UnknownGeneration(RetryableError):
    """The tree began in a generation of shards that this process does not know, or that does not exist."""

    def __init__(self, tree: str) -> None:
        super().__init__(f"tree {tree} began in a generation of shards that is not known here")
        self.tree = tree


class Layout(NamedTuple):
    """The streams of a deployment, as their metadata describes them."""

    generations: tuple[int, ...]
    """Number of shards in each generation, the first generation first."""
    growing: int = 0
    """Number of shards that a growth in progress leads to; 0 for none."""
    serves: bool = False
    """True if all streams of that growth exist, so that services take from them; no tree begins there yet."""

    @property
    def shards(self) -> int:
        """Return the number of streams that services take from."""
        return self.growing if self.serves else self.generations[-1]

    def __str__(self) -> str:
        return " -> ".join(map(str, self.generations))


def generation_of(tree: str) -> int:
    """Return the number of the generation, from 0, in which a tree began. Any text is an id of some generation."""
    return MARKERS.find(tree[-1]) + 1 if len(tree) == ID_LENGTH else 0


def in_generation(tree: str, generation: int) -> str:
    """Return the id of a generation that has the other characters of this one, which is of the first generation."""
    return f"{tree[:-1]}{MARKERS[generation - 1]}" if generation else tree

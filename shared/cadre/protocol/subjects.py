"""Define the templates of the subjects of a deployment, and the streams of agents on NATS."""


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
    SEED = "effect.{shard}._pool._seed.{pool}"
    """The secret seed of a pool's random numbers, stored with the effects; no tree has this name."""
    TIMER = "timer.{shard}.{tree}.{run}.{name}"
    STORED = (JOURNAL, INBOX, CALL, CODE, EFFECT, TIMER)
    """All subjects of a shard's stream."""

    DEFINITION = "automation.{kind}.{name}"
    """A schedule, trigger, notice or budget; outside the shards, in the automation stream."""
    TICK = "automation.tick.schedule.{name}"
    """Holds the message that the server delivers when a schedule is due."""
    DUE = "automation.due.schedule.{name}"
    DELIVERY = "automation.delivery.{notice}.{id}"
    """Holds a webhook that is to be sent."""
    RETRY = "automation.retry.{notice}.{id}"
    """Holds one that the server delivers again later."""
    AUTOMATION_TRIAL = "automation.trial.message.{seq}"
    """Holds what is held against the tick, event or delivery at a sequence."""
    EVENT = "event.{subject}"
    """An event from outside that starts triggers; `subject` may be several tokens."""

    DELTA = "delta.{tree}.{run}"
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

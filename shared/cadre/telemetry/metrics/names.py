"""Every metric of Cadre, with its unit and attributes: those of OpenTelemetry's GenAI conventions, and our own.

The GenAI conventions are still in development and will change: these names are written here and nowhere else. No
attribute may be the id of a run, a session or a call, because each new value makes a time series for ever.
"""

from typing import Literal, NamedTuple

Kind = Literal["histogram", "counter", "observable counter", "observable gauge"]
"""The first two are recorded as things happen; the observable ones are read when metrics are collected."""

# --- attributes

AGENT = "gen_ai.agent.name"
OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
MODEL = "gen_ai.request.model"
TOKEN_TYPE = "gen_ai.token.type"
TOOL = "gen_ai.tool.name"
ERROR_TYPE = "error.type"
STATE = "cadre.run.state"
WAITING_FOR = "cadre.waiting_for"
PURPOSE = "cadre.model.purpose"
DECISION = "cadre.approval.decision"
QUEUE_KIND = "cadre.queue.kind"
QUEUE_NAME = "cadre.queue.name"
SHARD = "cadre.shard"
SESSION_STATE = "cadre.sandbox.state"
HOW = "cadre.sandbox.how"
OUTCOME = "cadre.outcome"
STORE_STATE = "cadre.store.state"
STREAM = "cadre.stream"
DOOR = "cadre.door"
ROUTE = "http.route"
TENANT = "cadre.tenant"
"""On any metric that a gateway of several tenants reads of one of them."""


class Metric(NamedTuple):
    """A metric; `unit` is in UCUM, `attributes` are the names that its series may have."""

    name: str
    kind: Kind
    unit: str
    about: str
    attributes: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets."""


# The conventions' own bounds; those of seconds go on to eleven minutes, as models may take longer than 82 s.
_SECONDS = tuple(0.01 * 2**power for power in range(17))
_TOKENS = tuple(float(4**power) for power in range(14))
_COUNTS = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
_LONG = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0, 604800.0)
"""Runs and people may take days."""

# --- GenAI

OPERATION_DURATION = Metric(
    "gen_ai.client.operation.duration",
    "histogram",
    "s",
    "How long model calls took, failed ones included.",
    (OPERATION, PROVIDER, MODEL, AGENT, PURPOSE, ERROR_TYPE),
    _SECONDS,
)
TOKEN_USAGE = Metric(
    "gen_ai.client.token.usage",
    "histogram",
    "{token}",
    "Tokens per model call.",
    (OPERATION, PROVIDER, MODEL, AGENT, TOKEN_TYPE),
    _TOKENS,
)
TOOL_DURATION = Metric(
    "gen_ai.execute_tool.duration",
    "histogram",
    "s",
    "How long tools worked, as their executors say; blocks of code are the tool `python`.",
    (OPERATION, TOOL, AGENT, ERROR_TYPE),
    _SECONDS,
)
AGENT_DURATION = Metric(
    "gen_ai.invoke_agent.duration",
    "histogram",
    "s",
    "How long runs took from their acceptance to their end, all waits included.",
    (OPERATION, AGENT, ERROR_TYPE),
    _LONG,
)
INFERENCE_CALLS = Metric(
    "gen_ai.invoke_agent.inference_calls",
    "histogram",
    "{call}",
    "Model answers per run that its steps and plans are made of.",
    (OPERATION, AGENT),
    _COUNTS,
)
TOOL_CALLS = Metric(
    "gen_ai.invoke_agent.tool_calls",
    "histogram",
    "{call}",
    "Tool calls per run that its model asked for.",
    (OPERATION, AGENT),
    _COUNTS,
)

# --- Cadre's own, of agents

STEPS = Metric("cadre.steps", "counter", "{step}", "Finished steps.", (AGENT,))
ANSWERS_LATE = Metric(
    "cadre.model.answers_late",
    "counter",
    "{call}",
    "Answers of a model to a worker that another had taken the call over from: bought twice, counted as used.",
    (AGENT,),
)
MODEL_WAITING = Metric(
    "cadre.model.waiting",
    "observable gauge",
    "{call}",
    "Model calls that wait in this process for others, as `model.parallel` wants.",
    (AGENT,),
)
FENCE_LOSSES = Metric(
    "cadre.fence.losses",
    "counter",
    "{entry}",
    "Entries that another worker had written before this one could: work done twice, kept once.",
    (AGENT,),
)
APPROVAL_WAIT = Metric(
    "cadre.approval.wait.duration",
    "histogram",
    "s",
    "How long calls waited for a person's word.",
    (AGENT, DECISION),
    _LONG,
)

# --- of every service that works at records

IN_FLIGHT = Metric(
    "cadre.records.in_flight",
    "observable gauge",
    "{record}",
    "Records that this process is handling.",
    (QUEUE_KIND, QUEUE_NAME),
)
REDELIVERIES = Metric(
    "cadre.records.redelivered",
    "observable counter",
    "{record}",
    "Records that this process got and some process had got before.",
    (QUEUE_KIND, QUEUE_NAME),
)

CLOCK_SKEW = Metric(
    "cadre.clock.skew",
    "observable gauge",
    "s",
    "How far the clock of this process's machine is ahead of that of the NATS server.",
)

STORE_TROUBLE = Metric(
    "cadre.store.trouble",
    "observable gauge",
    "{trouble}",
    "1 while the NATS store, as this process sees it, was `lost`, `refuses` writes, is `full`, `silent`, or takes too"
    " `small` messages; else 0.",
    (STORE_STATE,),
)

# --- of gateways: each reports the same about the whole deployment

QUEUE_LAG = Metric(
    "cadre.queue.lag",
    "observable gauge",
    "{record}",
    "Records that wait in a queue or are handed out and not acknowledged.",
    (QUEUE_KIND, QUEUE_NAME, SHARD),
)
RUNS = Metric(
    "cadre.runs",
    "observable gauge",
    "{run}",
    "Runs that have not ended; `queued` ones have not begun, `waiting` ones wait for a person, a time, a signal or"
    " their model endpoint.",
    (AGENT, STATE, WAITING_FOR),
)
APPROVALS = Metric("cadre.approvals.waiting", "observable gauge", "{call}", "Calls that wait for a person.")
APPROVALS_OLDEST = Metric(
    "cadre.approvals.oldest.age", "observable gauge", "s", "How long the oldest of them has waited."
)
RUNS_FINISHED = Metric(
    "cadre.runs.finished",
    "observable counter",
    "{run}",
    "Runs that have ended, by how.",
    (AGENT, STATE),
)
COST = Metric(
    "cadre.cost",
    "observable counter",
    "{unit}",
    "Price of model calls, in the price table's currency.",
    (AGENT, MODEL),
)
ATTEMPTS_LOST = Metric(
    "cadre.model.attempts_lost",
    "observable counter",
    "{call}",
    "Model calls whose worker died and which another worker has taken over.",
    (AGENT,),
)
DEAD_LETTERS = Metric("cadre.dead_letters", "observable gauge", "{message}", "Messages that were given up.")
STREAM_BYTES = Metric("cadre.stream.size", "observable gauge", "By", "Bytes of a stream, one copy of it.", (STREAM,))
STREAM_LAGGING = Metric(
    "cadre.stream.replicas.lagging",
    "observable gauge",
    "{replica}",
    "Copies of a stream whose NATS server is offline or behind the stream's leader.",
    (STREAM,),
)
STORE_UTILIZATION = Metric(
    "cadre.store.utilization",
    "observable gauge",
    "{part}",
    "How much of its limit the NATS account has stored, from 0 to 1; only where it has a limit.",
)
DOOR_REQUESTS = Metric(
    "cadre.door.requests",
    "counter",
    "{request}",
    "Requests that came by another protocol than the native API, with the code of those that were refused.",
    (DOOR, ROUTE, ERROR_TYPE),
)

# --- of the other services

SANDBOX_SESSIONS = Metric(
    "cadre.sandbox.sessions",
    "observable gauge",
    "{interpreter}",
    "Interpreters that are at work (`busy`) or wait for their run to come back (`warm`).",
    (SESSION_STATE,),
)
SANDBOX_CALLS = Metric(
    "cadre.sandbox.calls",
    "observable counter",
    "{call}",
    "Blocks of code and their continuations, by what they met: a `warm` interpreter, a `fresh` one, …",
    (HOW,),
)
MEMORY_DURATION = Metric(
    "cadre.memory.call.duration",
    "histogram",
    "s",
    "Calls of the memory service that it has answered.",
    (TOOL, ERROR_TYPE),
    _SECONDS,
)
MEMORY_REFUSED_CHUNKS = Metric(
    "cadre.memory.chunks.refused",
    "counter",
    "{chunk}",
    "Chunks that the embeddings model has not taken as they are: embedded in `parts`, or found by their `words_only`.",
    (OUTCOME,),
)
TRACER_SPANS = Metric(
    "cadre.tracer.spans",
    "observable counter",
    "{span}",
    "Spans that the receiver has taken, or refused for good.",
    (OUTCOME,),
)
TRACER_FAILING = Metric(
    "cadre.tracer.failing",
    "observable gauge",
    "{trouble}",
    "1 while the receiver of traces does not take them.",
)
EXPORT_FAILURES = Metric(
    "cadre.metrics.export.failures",
    "observable counter",
    "{export}",
    "Exports of metrics that did not arrive.",
)

METRICS = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
"""All of them, in this order."""

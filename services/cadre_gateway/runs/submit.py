"""From a request to a Task in its agent's inbox."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets
import time

from cadre.adapters.otel.current_span import current_traceparent
from cadre.ports import Blobs
from cadre.protocol.messages import Origin, Task
from cadre.protocol.topology import task_id
from cadre.telemetry.tracing.spans import link_to
from cadre_gateway.desk import Desk
from cadre_gateway.index.run_list import RunSummary, of_task
from cadre_gateway.requests.body import Submission
from cadre_gateway.requests.problems import Problem, invalid
from cadre_gateway.runs.carry_files import Source, carry
from cadre_gateway.runs.directory import live_agents
from cadre_gateway.runs.sessions import take_turn
from cadre_gateway.runs.workspaces import put_files

SENDER = "gateway"

_DATA_URL = re.compile(r"data:image/[\w.+-]+(?:;[\w-]+=[^;,]*)*;base64,", re.ASCII)
_BLOB = re.compile(r"blob:[0-9a-f]{64}")
_KEY_CHARS = 255


async def submit(desk: Desk, wanted: Submission, key: str | None, traceparent: str | None) -> RunSummary:
    """Publishes the Task of a new root run; a repeated `key` finds the run that it started before.

    Raises Problem, RetryableError.
    """
    check_agent(desk, wanted.agent)
    run = new_run_id() if key is None else run_id_of(wanted.agent, key)
    known = desk.index.get(run, run)
    if known is not None:
        return known
    check_not_erased(desk, run)
    await desk.capacity.admit(run)
    images = [await _image(desk.platform.blobs, number, ref) for number, ref in enumerate(wanted.images)]
    await put_files(desk, run, wanted.files)
    continues = None
    if wanted.session:
        continues = await take_turn(desk, wanted.agent, wanted.session, run, wanted.reset)
        is_there = continues is not None and not desk.ledger.is_erased(continues)
        await carry(desk, Source(continues) if continues is not None and is_there else None, run)
    task = Task(
        id=task_id(run),
        tree=run,
        run=run,
        at=time.time(),
        agent=wanted.agent,
        task=wanted.task,
        additional_args=wanted.additional_args,
        images=images,
        max_steps=wanted.max_steps,
        session=wanted.session,
        continues=continues,
        deadline=time.time() + wanted.deadline if wanted.deadline is not None else None,
        budget=wanted.budget.as_budget() if wanted.budget is not None else None,
        origin=_origin(wanted),
        trace=trace_of(traceparent),
    )
    await desk.platform.bus.send(task, SENDER)
    return of_task(task)


def _origin(wanted: Submission) -> Origin | None:
    """Whose tree it is; None when nobody's in particular."""
    if wanted.user is None and wanted.session is None:
        return None
    return Origin(user=wanted.user, session=wanted.session)


def check_not_erased(desk: Desk, run: str) -> None:
    """Raises a 410 problem when a request with the same key started the run, and it was erased since."""
    if desk.ledger.is_erased(run):
        raise Problem(
            410, "run-erased", f"run {run}, which this Idempotency-Key started, was erased: send another key"
        )


def new_run_id() -> str:
    """Lowercase hex, later runs sort behind earlier ones."""
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"


def run_id_of(agent: str, key: str) -> str:
    """The id that every request with this agent and Idempotency-Key gets. Raises a problem."""
    if not 0 < len(key) <= _KEY_CHARS:
        raise invalid(f"Idempotency-Key: send 1 to {_KEY_CHARS} characters, or leave the header out")
    return hashlib.sha256(f"{agent}\n{key}".encode()).hexdigest()[:32]


def trace_of(traceparent: str | None) -> str | None:
    """What the run's trace is linked to: this request where its span is recorded, else the caller's span if there
    is one. The run has a trace of its own, whose ids follow from the run's."""
    if (here := current_traceparent()) is not None:
        return here
    return traceparent if link_to(traceparent) else None


def check_agent(desk: Desk, agent: str) -> None:
    """Raises a 404 problem that names the live agents when it is none of them."""
    live = live_agents(desk.platform.registry.presences())
    if agent in live:
        return
    if live:
        raise Problem(
            404, "unknown-agent", f"no live agent is named {agent!r}; live agents: {', '.join(sorted(live))}"
        )
    raise Problem(
        404,
        "unknown-agent",
        f"no live agent is named {agent!r}, nor is any other alive: start one with `cadre agent FILE`",
    )


async def _image(blobs: Blobs, number: int, ref: str) -> str:
    if ref.startswith("https:") or _BLOB.fullmatch(ref):
        return ref
    head = _DATA_URL.match(ref)
    if head is None:
        raise invalid(
            f"images[{number}]: send a `data:image/…;base64,…` URL, an https: URL or a `blob:<sha256>`"
        )
    try:
        data = base64.b64decode(ref[head.end() :], validate=True)
    except binascii.Error as error:
        raise invalid(f"images[{number}]: not base64: {error}") from error
    return await blobs.put(data)

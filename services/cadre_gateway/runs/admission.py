"""Whether a request may begin a run, and under which id."""

from __future__ import annotations

import hashlib
import secrets
import time
from typing import NamedTuple

from cadre.adapters.nats.registry import NatsRegistry
from cadre.api.runs import RunSummary
from cadre_gateway.capacity import Capacity
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.requests.problems import Problem, invalid
from cadre_gateway.retention.tree_records import TreeRecords
from cadre_gateway.runs.directory import live_agents

_MAX_KEY_CHARS = 255


class Admission:
    """Checks that an agent is alive, that the run is new, and that there is room for it."""

    def __init__(
        self, index: RunIndex, trees: TreeRecords, registry: NatsRegistry, capacity: Capacity
    ) -> None:
        self._index = index
        self._trees = trees
        self._registry = registry
        self._capacity = capacity

    async def admit(self, agent: str, key: str | None) -> Admitted:
        """Admits a new run of the agent; a repeated Idempotency-Key `key` finds the run that it started before.

        Raises a 404, 410, 422 or 429 problem, BusUnavailable.
        """
        self._check_agent(agent)
        run = new_run_id() if key is None else run_id_of(agent, key)
        known = self._index.get(run, run)
        if known is None:
            if self._trees.is_erased(run):
                raise Problem(
                    410,
                    "run-erased",
                    f"run {run}, which this Idempotency-Key started, was erased: send another key",
                )
            await self._capacity.admit(run)
        return Admitted(run, known)

    def _check_agent(self, agent: str) -> None:
        """Raises a 404 problem that names the live agents when it is none of them."""
        live = live_agents(self._registry.presences())
        if agent in live:
            return
        if live:
            others = f"; live agents: {', '.join(sorted(live))}"
        else:
            others = ", nor is any other alive: start one with `cadre agent FILE`"
        raise Problem(404, "unknown-agent", f"no live agent is named {agent!r}{others}")


class Admitted(NamedTuple):
    """A run that a request may begin."""

    run: str
    known: RunSummary | None
    """The run itself, when the same request has begun it before."""


def new_run_id() -> str:
    """Lowercase hex, later runs sort behind earlier ones."""
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"


def run_id_of(agent: str, key: str) -> str:
    """The id that every request with this agent and Idempotency-Key gets. Raises a 422 problem."""
    if not 0 < len(key) <= _MAX_KEY_CHARS:
        raise invalid(f"Idempotency-Key: send 1 to {_MAX_KEY_CHARS} characters, or leave the header out")
    return hashlib.sha256(f"{agent}\n{key}".encode()).hexdigest()[:32]

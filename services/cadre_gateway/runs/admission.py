"""Whether a run may begin: the agent is alive, the run is new, and there is room; and the id that it gets."""

import hashlib
import secrets
import time
from dataclasses import dataclass
from typing import NamedTuple

from cadre.adapters.nats.registry import NatsRegistry
from cadre.adapters.nats.storage import NatsStorage
from cadre.api.runs import RunSummary
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.requests.problems import Problem, full, invalid
from cadre_gateway.retention.tree_records import TreeRecords
from cadre_gateway.runs.directory import live_agents

MAX_FILL_SHARE = 0.9
"""No run begins beyond this share of the storage; the rest is for the active runs."""

_MAX_KEY_CHARS = 255


@dataclass(frozen=True)
class Capacity:
    """Refuses new runs while there is still room for the active ones to come to their end."""

    storage: NatsStorage

    async def admit(self, tree: str) -> None:
        """Raises a 429 problem when a new tree must not begin, BusUnavailable."""
        usage = await self.storage.fullest(tree)
        if usage is not None and usage.share >= MAX_FILL_SHARE:
            raise full(
                f"{usage.where} holds {usage.used:,} of {usage.limit:,} bytes:"
                f" no run is begun over {MAX_FILL_SHARE:.0%}"
            )


class Admitted(NamedTuple):
    """A run that a request may begin."""

    run: str
    known: RunSummary | None
    """The run itself, when the same request has begun it before."""


@dataclass(frozen=True)
class Admission:
    """Checks that an agent is alive, that the run is new, and that there is room for it."""

    index: RunIndex
    trees: TreeRecords
    registry: NatsRegistry
    capacity: Capacity

    async def admit(self, agent: str, key: str | None) -> Admitted:
        """Admits a new run of the agent; a repeated Idempotency-Key `key` finds the run that it started before.

        Raises a 404, 410, 422 or 429 problem, BusUnavailable.
        """
        self._check_agent(agent)
        run = new_run_id() if key is None else run_id_of(agent, key)
        known = self.index.get(run, run)
        if known is None:
            if self.trees.is_erased(run):
                raise Problem(
                    410,
                    "run-erased",
                    f"run {run}, which this Idempotency-Key started, was erased: send another key",
                )
            await self.capacity.admit(run)
        return Admitted(run, known)

    def _check_agent(self, agent: str) -> None:
        """Raises a 404 problem that names the live agents when it is none of them."""
        live = live_agents(self.registry.presences())
        if agent in live:
            return
        if live:
            others = f"; live agents: {', '.join(sorted(live))}"
        else:
            others = ", nor is any other alive: start one with `cadre agent FILE`"
        raise Problem(404, "unknown-agent", f"no live agent is named {agent!r}{others}")


def new_run_id() -> str:
    """Lowercase hex, later runs sort behind earlier ones."""
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"


def run_id_of(agent: str, key: str) -> str:
    """The id that every request with this agent and Idempotency-Key gets. Raises a 422 problem."""
    if not 0 < len(key) <= _MAX_KEY_CHARS:
        raise invalid(f"Idempotency-Key: send 1 to {_MAX_KEY_CHARS} characters, or leave the header out")
    return hashlib.sha256(f"{agent}\n{key}".encode()).hexdigest()[:32]

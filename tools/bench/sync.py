"""The cost of having every acknowledged write on disk, or on three servers: the same work on each, in turns."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from statistics import median
from typing import Any, NamedTuple

from bench.delegation import Operation, flood, timed, working_pair


class Variant(NamedTuple):
    """NATS servers, one or three, and their sync_interval."""

    servers: int
    sync: str


VARIANTS = {
    "always": Variant(1, "always"),
    "10ms": Variant(1, "10ms"),
    "2m": Variant(1, "2m"),
    "three_always": Variant(3, "always"),
    "three_100ms": Variant(3, "100ms"),
    "three_10ms": Variant(3, "10ms"),
}
"""Cadre's default for one server, an interval, the server's own default; the same of three, 100 ms being Cadre's."""


class Size(NamedTuple):
    singles: int
    rounds: int
    delegations: int
    appends: int


FULL = Size(singles=100, rounds=3, delegations=250, appends=2_000)
QUICK = Size(singles=60, rounds=3, delegations=150, appends=1_000)


async def measure(size: Size) -> dict[str, Any]:
    """Times and rates of each variant, and as ratios to `always` on one server."""
    async with AsyncExitStack() as stack:
        pairs = {
            name: await stack.enter_async_context(working_pair(sync=one.sync, servers=one.servers))
            for name, one in VARIANTS.items()
        }
        values: dict[str, Any] = {}
        appends = {name: pair.append for name, pair in pairs.items()}
        delegations = {name: pair.delegate for name, pair in pairs.items()}
        for what, operations, count in (
            ("append", appends, size.appends),
            ("delegation", delegations, size.delegations),
        ):
            values |= await _latencies(what, operations, size.singles)
            values |= await _rates(what, operations, size.rounds, count)
        return values


async def _latencies(what: str, operations: Mapping[str, Operation], count: int) -> dict[str, Any]:
    rows = [{name: await timed(operation) for name, operation in operations.items()} for _ in range(count)]
    found = {name: median(row[name] for row in rows) for name in operations}
    return _named(f"{what}_p50", found, "ms", 1e3)


async def _rates(what: str, operations: Mapping[str, Operation], rounds: int, count: int) -> dict[str, Any]:
    rows = [{name: (await flood(operation, count))[0] for name, operation in operations.items()} for _ in range(rounds)]
    found = {name: median(row[name] for row in rows) for name in operations}
    return _named(f"{what}_rate", found, "per_second", 1.0)


def _named(what: str, found: dict[str, float], unit: str, scale: float) -> dict[str, float]:
    values = {f"sync_{what}_{unit}_{name}": value * scale for name, value in found.items()}
    return values | {
        f"sync_{what}_ratio_{name}": value / found["always"] for name, value in found.items() if name != "always"
    }

"""What it costs to have on disk whatever is acknowledged: two servers side by side, the same work in turns.

The one syncs before it acknowledges (`always`, Cadre's default), the other every two minutes (the server's).
"""

from statistics import median
from typing import Any, NamedTuple

from bench.delegation import Operation, flood, timed, working_pair

LAZY = "2m"


class Size(NamedTuple):
    singles: int
    rounds: int
    delegations: int
    appends: int


FULL = Size(singles=100, rounds=3, delegations=250, appends=2_000)
QUICK = Size(singles=60, rounds=3, delegations=150, appends=1_000)


async def measure(size: Size) -> dict[str, Any]:
    """Ratios `always` / every two minutes: of times above 1, of rates below 1."""
    async with working_pair(sync="always") as always, working_pair(sync=LAZY) as lazy:
        values: dict[str, Any] = {}
        for name, pairs, count in (
            ("append", (always.append, lazy.append), size.appends),
            ("delegation", (always.delegate, lazy.delegate), size.delegations),
        ):
            values |= await _latencies(name, pairs, size.singles)
            values |= await _rates(name, pairs, size.rounds, count)
        return values


async def _latencies(name: str, pairs: tuple[Operation, Operation], count: int) -> dict[str, Any]:
    seconds = [[await timed(operation) for operation in pairs] for _ in range(count)]
    always, lazy = (median(column) for column in zip(*seconds, strict=True))
    return {
        f"sync_{name}_p50_ratio": always / lazy,
        f"sync_{name}_p50_ms": always * 1e3,
        f"lazy_{name}_p50_ms": lazy * 1e3,
    }


async def _rates(name: str, pairs: tuple[Operation, Operation], rounds: int, count: int) -> dict[str, Any]:
    rates = [[(await flood(operation, count))[0] for operation in pairs] for _ in range(rounds)]
    always, lazy = (median(column) for column in zip(*rates, strict=True))
    return {
        f"sync_{name}_rate_ratio": median(row[0] / row[1] for row in rates),
        f"sync_{name}s_per_second": always,
        f"lazy_{name}s_per_second": lazy,
    }

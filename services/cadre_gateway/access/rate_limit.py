"""How often a key may ask and start runs: token buckets, in the memory of each gateway."""

from __future__ import annotations

import time
from collections.abc import Callable

from cadre.recent import Recent
from cadre_gateway.access.principal import Principal
from cadre_gateway.requests.problems import Problem

MAX_BUCKETS = 10_000
"""Keys and addresses that are remembered; who was not seen for the longest begins anew."""

MAX_WRONG_KEYS = 30
"""Tries with keys that are none which an address has at once; one more every _WRONG_SECONDS."""

_WRONG_SECONDS = 2.0
_DAY_SECONDS = 86_400.0
_BURST_SECONDS = 5.0
"""A key that was silent for so long may ask for all of that time at once."""


class RateLimits:
    """The buckets of one gateway."""

    def __init__(self, default_rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`default_rate` has the requests a second of a key that says none of its own."""
        self._default_rate = default_rate
        self._clock = clock
        self._buckets: Recent[str, tuple[float, float]] = Recent(MAX_BUCKETS)
        """What each has left, and when that was counted."""

    def check_rate(self, caller: Principal) -> None:
        """Counts a request. Raises a 429 problem when there were too many."""
        if caller.key:
            account, rate = caller.account or caller.key, caller.rate or self._default_rate
            self._take(
                f"rate {account}", rate, max(1.0, rate * _BURST_SECONDS), f"{rate:g} requests a second"
            )

    def check_start(self, caller: Principal) -> None:
        """Counts a run that is begun. Raises a 429 problem when there were too many."""
        if caller.key and (runs := caller.runs_per_day) is not None:
            account = caller.account or caller.key
            self._take(f"runs {account}", runs / _DAY_SECONDS, runs, f"{runs} runs a day")

    def check_stranger(self, source: str) -> None:
        """Counts a request whose key is none. Raises a 429 problem when there were too many from that address."""
        self._take(f"wrong {source}", 1 / _WRONG_SECONDS, MAX_WRONG_KEYS, "tries with keys that are none")

    def _take(self, name: str, rate: float, most: float, what: str) -> None:
        now = self._clock()
        left, at = self._buckets.get(name, (most, now))
        left = min(most, left + (now - at) * rate)
        if left < 1:
            seconds = max(1, int((1 - left) / rate) + 1)
            problem = Problem(429, "rate-limited", f"more than {what}: ask again in {seconds} s")
            problem.headers = {"Retry-After": str(seconds)}
            raise problem
        self._buckets[name] = (left - 1, now)

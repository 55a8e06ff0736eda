"""Tests of how often a key may ask, and by which names the gateway may be called."""

import msgspec
import pytest
from starlette.datastructures import Headers

from cadre_gateway.access.gate import MAX_WRONG_KEYS, RateLimits, check_host
from cadre_gateway.access.principal import ANYBODY, Principal
from cadre_gateway.requests.problems import Problem


class Hands:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def caller(key: str = "k", rate: float | None = None, runs: int | None = None) -> Principal:
    return Principal(name=key, key=key, roles=frozenset({"operator"}), rate=rate, runs_per_day=runs)


def test_a_key_has_its_rate_and_a_burst_of_five_seconds_of_it() -> None:
    clock = Hands()
    limits = RateLimits(100.0, clock)
    for _ in range(10):
        limits.check_rate(caller(rate=2))
    with pytest.raises(Problem) as refused:
        limits.check_rate(caller(rate=2))
    assert (refused.value.status, refused.value.code) == (429, "rate-limited")
    assert refused.value.headers == {"Retry-After": "1"}
    limits.check_rate(caller("other", rate=2))
    clock.now += 0.5
    limits.check_rate(caller(rate=2))
    with pytest.raises(Problem):
        limits.check_rate(caller(rate=2))


def test_without_one_of_its_own_it_has_that_of_the_gateway_and_who_has_no_key_has_none() -> None:
    limits = RateLimits(1.0, Hands())
    for _ in range(5):
        limits.check_rate(caller())
    with pytest.raises(Problem):
        limits.check_rate(caller())
    for _ in range(1000):
        limits.check_start(ANYBODY)


def test_a_new_sign_in_begins_with_no_new_quota() -> None:
    limits = RateLimits(1000.0, Hands())
    for sign_in in ("one", "two"):
        limits.check_start(msgspec.structs.replace(caller(sign_in, runs=2), account="k"))
    with pytest.raises(Problem):
        limits.check_start(caller("k", runs=2))


def test_a_quota_counts_runs_and_nothing_else() -> None:
    clock = Hands()
    limits = RateLimits(1000.0, clock)
    for _ in range(3):
        limits.check_start(caller(runs=3))
        limits.check_rate(caller(runs=3))
    with pytest.raises(Problem, match="3 runs a day") as refused:
        limits.check_start(caller(runs=3))
    assert int(refused.value.headers["Retry-After"]) == 86_400 // 3 + 1
    limits.check_rate(caller(runs=3))
    clock.now += 86_400 / 3 + 1
    limits.check_start(caller(runs=3))


def test_who_tries_keys_is_slowed_down() -> None:
    limits = RateLimits(1.0, Hands())
    for _ in range(MAX_WRONG_KEYS):
        limits.check_stranger("10.0.0.1")
    with pytest.raises(Problem) as refused:
        limits.check_stranger("10.0.0.1")
    assert refused.value.status == 429
    limits.check_stranger("10.0.0.2")


@pytest.mark.parametrize(
    "host",
    [
        *(
            "127.0.0.1:8080",
            "localhost:8080",
            "localhost",
            "[::1]:8080",
            "10.1.2.3",
            "gateway:8080",
            "LOCALHOST",
        ),
        *("gateway.cadre.svc", "gateway.cadre.svc.cluster.local:80", "desk.localhost", "cadre.example.com"),
        "cadre.example.com.:443",
    ],
)
def test_addresses_private_names_and_those_that_are_named_are_answered(host: str) -> None:
    check_host(Headers({"host": host}), frozenset({"cadre.example.com"}))


@pytest.mark.parametrize(
    "host",
    [
        *(
            "evil.example",
            "evil.example:8080",
            "127.0.0.1.evil.example",
            "cadre.example.com.evil.example",
            "",
        ),
        *(
            "localhost.evil.example",
            "127.0.0.1@evil.example",
            "evil.example:80:80",
            "evilsvc.example",
            "[evil.example]",
        ),
        "127.0.0.1.nip.io",
    ],
)
def test_other_names_are_not(host: str) -> None:
    with pytest.raises(Problem) as refused:
        check_host(Headers({"host": host}), frozenset({"cadre.example.com"}))
    assert (refused.value.status, refused.value.code) == (421, "unknown-host")

"""Managers with five members each, of which three hang until the manager waits no longer: a model that is silent, a
tool that does not return, a person who does not answer. The two others' reports are to be used, and nothing held."""

import time
from statistics import median

from bench.scaling.deployed import agents, deployed, metric, tools
from bench.scaling.table import Row, measure_each
from harness.patience import eventually
from harness.stack import Gateway, Service

TEAMS = (1, 8)
PLACES = 4
"""CADRE_CONCURRENCY of each process."""
TIMEOUT = 10.0
"""The manager's file."""
_MEMBERS = ("quick", "brisk", "mute", "stuck", "asking")
_WELL = ("quick", "brisk")
_TOKENS = 1_000_000
_IN_FLIGHT = "cadre_records_in_flight"

ROWS = {
    "well": Row("the two reports are there after, median", "s", 2),
    "short": Row("another run of the manager meanwhile", "s", 2),
    "boss_held": Row(f"places of {PLACES} that are held meanwhile: manager", "", 0),
    **{f"{name}_held": Row(f"… {name}", "", 0) for name in (*_MEMBERS, "tools")},
    "ended": Row(f"the manager has answered after, median (it waits {TIMEOUT:g} s)", "s", 2),
    "worst": Row("… the last one", "s", 2),
    "reports": Row("answers with both reports", "", 0),
    "freed": Row("all places are free, all runs have ended: behind the last answer", "s", 1),
    "tokens": Row("tokens that a tree has used", "", 0),
}


def _measure(teams: int) -> dict[str, float]:
    with deployed() as stack:
        stack.environment["CADRE_CONCURRENCY"] = str(PLACES)
        services = {name: agents(stack, name)[0] for name in ("boss", *_MEMBERS)}
        services["tools"] = tools(stack)[0]
        gateway = stack.open_gateway()
        gateway.wait_offered(len(_MEMBERS) + 1)
        gateway.answer("boss", "short")
        runs = [gateway.submit("boss", "Ask them.", budget={"tokens": _TOKENS}) for _ in range(teams)]
        asked = [gateway.wait_for(run, "delegate.started") for run in runs]
        began = time.perf_counter()
        gateway.answer("boss", "short")
        values = {"short": time.perf_counter() - began} | _held(services)
        ended = [gateway.finished(run) for run in runs]
        last = time.perf_counter()
        _until_nothing_is_held(gateway, services, runs)
        freed = time.perf_counter() - last
        took = [one["ended_at"] - first["at"] for one, first in zip(ended, asked, strict=True)]
        wells = [at - first["at"] for run, first in zip(runs, asked, strict=True) for at in _reports(gateway, run)]
        values |= {
            "well": median(wells),
            "ended": median(took),
            "worst": max(took),
            "freed": freed,
            "reports": sum(str(one["output"]).count("found it") == len(_WELL) for one in ended),
            "tokens": median(one["usage"]["input_tokens"] + one["usage"]["output_tokens"] for one in ended),
        }
        return values


def _reports(gateway: Gateway, run: str) -> list[float]:
    """Return when the reports of those who answer were taken in."""
    return [
        data["at"]
        for name, data in gateway.events(run)
        if name == "delegate.finished" and data["event"]["state"] == "success"
    ]


def _held(services: dict[str, Service]) -> dict[str, float]:
    return {f"{name}_held": metric(service, _IN_FLIGHT) for name, service in services.items()}


def _going_on(gateway: Gateway, runs: list[str]) -> int:
    """Return how many of the runs below these have not ended."""
    return sum(child["ended_at"] is None for run in runs for child in gateway.run(run)["children"])


def _until_nothing_is_held(gateway: Gateway, services: dict[str, Service], runs: list[str]) -> None:
    eventually(
        lambda: not sum(_held(services).values()) and not _going_on(gateway, runs),
        what="all places are free and all runs have ended",
        state=lambda: _held(services),
    )


def run() -> None:
    """Prints a column for each number of such teams at once."""
    measure_each("hanging members", ROWS, {f"{one} at once": one for one in TEAMS}, _measure)

"""Every panel of the shipped dashboard shows what the API says, scraped or sent: the numbers of the same runs."""

import asyncio
import json
import re
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import cached_property
from math import ceil
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from alerts.prometheus_process import Prometheus, Watchers
from cadre.adapters.nats.streams import jetstream
from cadre.telemetry.metrics import names
from harness.patience import eventually
from harness.people import decide, waiting
from harness.stack import Gateway, Stack
from observability.programs import ROOT, Collector

Numbers = dict[str, float]
"""By the labels of a series, joined by spaces."""

PANELS: dict[str, dict[str, Any]] = {
    panel["title"]: panel
    for panel in json.loads((ROOT / "deploy/grafana/dashboards/cadre.json").read_text())["panels"]
    if panel["type"] != "row"
}

pytestmark = pytest.mark.timeout(900)


class Told:
    """The API's answers on all runs, once all but a held one have ended."""

    def __init__(self, gateway: Gateway, stack: Stack) -> None:
        self._gateway = gateway
        self._stack = stack

    def get(self, path: str, **query: Any) -> Any:
        answer = self._gateway.request("GET", path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    @cached_property
    def runs(self) -> list[dict[str, Any]]:
        """All of them, those of members too."""
        found: list[dict[str, Any]] = []
        left = [one["id"] for one in self.get("/v1/runs", limit=100)["runs"]]
        while left:
            one = self._gateway.run(left.pop())
            found.append(one)
            left += [child["id"] for child in one["children"]]
        return list({one["id"]: one for one in found}.values())

    @cached_property
    def spans(self) -> list[dict[str, Any]]:
        """Those that have ended, of all runs."""
        roots = [one["id"] for one in self.runs if one["id"] == one["tree"]]
        return [span for run in roots for span in self.get(f"/v1/runs/{run}/trace")["spans"] if not span.get("open")]

    def exported(self) -> list[dict[str, Any]]:
        """Return the same as a tracer sends them: with the sending of calls, which the tree of a trace leaves out."""
        roots = [one["id"] for one in self.runs if one["id"] == one["tree"]]
        traces = [self.get(f"/v1/runs/{run}/trace", format="otlp") for run in roots]
        return [
            span
            for trace in traces
            for group in trace["resourceSpans"]
            for scope in group["scopeSpans"]
            for span in scope["spans"]
        ]

    def named(self, start: str) -> list[dict[str, Any]]:
        return [span for span in self.spans if span["name"].startswith(start)]

    def stats(self, *by: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.get("/v1/stats", by=",".join(by))["rows"]
        return rows

    def states(self, state: str) -> int:
        return sum(one["state"] == state for one in self.runs)

    def of_nats(self, what: str) -> dict[str, Any]:
        async def ask() -> dict[str, Any]:
            async with self._stack.platform() as platform:
                return await jetstream.api(platform.nc, what)

        return asyncio.run(ask())


@pytest.fixture(scope="module")
def held(gateway: Gateway, stack: Stack, watchers: Watchers, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Runs of each kind, all of which have ended but this one, which waits for a person."""
    marks = tmp_path_factory.mktemp("marks") / "marks"
    decided = gateway.submit("boss", f"delegate: use refund {marks} 0.1")
    (call,) = waiting(gateway, decided)
    assert decide(gateway, call["call"], "approved").status_code in (200, 202)
    gateway.succeeded(decided)
    gateway.succeeded(gateway.submit("boss", "delegate: think 1"))
    gateway.succeeded(gateway.submit("worker", "use effect /nowhere/mark 0"))
    assert gateway.finished(gateway.submit("worker", "be refused"))["state"] == "error"
    said = {"model": "helper", "messages": [{"role": "user", "content": "say hello"}]}
    assert gateway.request("POST", "/v1/chat/completions", json=said).status_code == 200
    gateway.succeeded(gateway.submit("coder", "count"))
    for _ in range(2):
        gateway.succeeded(gateway.submit("keeper", "keep", user="anna"))
    held = gateway.submit("boss", f"delegate: use refund {marks} 0.1")
    waiting(gateway, held)

    async def send_what_nobody_reads() -> None:
        async with stack.platform() as platform:
            run = uuid4().hex
            subject = platform.topology.inbox("helper", "gateway", run, run)
            await jetstream.append(platform.nc, subject, b"no record")

    asyncio.run(send_what_nobody_reads())
    return held


@pytest.fixture(scope="module")
def told(gateway: Gateway, stack: Stack, held: str, collector: Collector, watchers: Watchers) -> Told:
    one = Told(gateway, stack)
    eventually(lambda: len(one.get("/v1/dead-letters")["dead_letters"]) == 1, what="the letter is dead")
    for run in one.runs:
        if run["id"] == run["tree"]:
            spans = gateway.request("GET", f"/v1/runs/{run['id']}/trace", params={"format": "otlp"})
            json_type = {"content-type": "application/json"}
            taken = httpx2.post(f"{collector.url}/v1/traces", content=spans.content, headers=json_type)
            assert taken.status_code == 200, taken.text
    return one


def shown(prometheus: Prometheus, title: str, target: int = 0) -> Numbers:
    """Return what a panel's query gives now, with all that was ever counted in the place of what is counted per second:
    a series that begins with its first value has no rate of it."""
    expression = PANELS[title]["targets"][target]["expr"].replace("$agent", ".*")
    expression = re.sub(r"(?:rate|increase)\(([^()]*)\[[^]]*\]\)", r"\1", expression)
    return {
        " ".join(value for _, value in sorted(one["metric"].items())): float(one["value"][1])
        for one in prometheus.query(expression)
        if one["value"][1] != "NaN"
    }


def counts(per: float) -> Callable[[Numbers], Numbers]:
    """Return what makes the counts of a panel that shows them per so many seconds; those of 0 are left out."""
    return lambda numbers: {name: n / per for name, n in numbers.items() if n}


def same(numbers: Numbers) -> Numbers:
    return numbers


def sums(rows: list[dict[str, Any]], by: Callable[[dict[str, Any]], str], what: str) -> Numbers:
    found: Numbers = defaultdict(float)
    for row in rows:
        if row[what]:
            found[by(row)] += row[what]
    return dict(found)


def tally(spans: list[dict[str, Any]], by: Callable[[dict[str, Any]], str]) -> Numbers:
    return {name: float(n) for name, n in Counter(map(by, spans)).items()}


EXACT: dict[tuple[str, int], tuple[Callable[[Numbers], Numbers], Callable[[Told], Numbers]]] = {
    ("Queued", 0): (same, lambda told: {"": told.states("queued")}),
    ("Running", 0): (same, lambda told: {"": told.states("running")}),
    ("Waiting", 0): (same, lambda told: {"": told.states("waiting")}),
    ("Calls that wait for a person", 0): (
        same,
        lambda told: {"": len(told.get("/v1/approvals")["approvals"])},
    ),
    ("Dead letters", 0): (same, lambda told: {"": len(told.get("/v1/dead-letters")["dead_letters"])}),
    ("Cost, last 24 h", 0): (same, lambda told: {"": sum(row["cost"] for row in told.stats("model"))}),
    ("Ended runs, and requests at other doors, per minute", 0): (
        counts(60),
        lambda told: tally([one for one in told.runs if one["ended_at"]], lambda one: one["state"]),
    ),
    ("Ended runs, and requests at other doors, per minute", 1): (counts(60), lambda told: {"openai": 1.0}),
    ("Steps per minute", 0): (
        counts(60),
        lambda told: sums([one | one["own_usage"] for one in told.runs], lambda one: one["agent"], "steps"),
    ),
    ("Tokens per minute", 0): (
        counts(60),
        lambda told: {
            f"{row['model']} {kind}": float(row[f"{kind}_tokens"])
            for row in told.stats("model")
            for kind in ("input", "output")
            if row["model"]
        },
    ),
    ("Cost per hour", 0): (
        counts(3600),
        lambda told: sums(told.stats("agent", "model"), lambda row: f"{row['agent']} {row['model']}", "cost"),
    ),
    ("Tool calls that fail", 0): (
        same,
        lambda told: {
            row["tool"]: row["tool_failures"] / row["tool_calls"]
            for row in told.stats("tool")
            if row["tool"] and row["tool_failures"]
        },
    ),
    # Neither the spans of a gateway's requests nor those of tools: these go past the tracer.
    ("Tracer: spans per minute", 0): (counts(60), lambda told: {"exported": float(len(told.exported()))}),
    ("Memory: calls per minute", 0): (
        counts(60),
        # What a run keeps it keeps behind its end, without a span.
        lambda told: {
            "recall": float(len(told.named("search_memory"))),
            "remember": float(sum(one["agent"] == "keeper" for one in told.runs)),
        },
    ),
}
"""By panel and query: what makes it a count, and the same count by the API."""


@pytest.mark.parametrize("way", ["scraped", "sent"])
@pytest.mark.parametrize(("title", "target"), EXACT)
def test_a_panel_shows_what_the_api_says(watchers: Watchers, told: Told, way: str, title: str, target: int) -> None:
    scale, by_api = EXACT[title, target]
    expected = by_api(told)
    last: Numbers = {}

    def agree() -> bool:
        last.clear()
        last.update(scale(shown(watchers.ways[way], title, target)))
        return last == pytest.approx(expected)

    eventually(agree, what=f"{title} is {expected}", state=lambda: last)


@pytest.mark.parametrize("way", ["scraped", "sent"])
@pytest.mark.parametrize(("number", "share"), [(0, 0.5), (1, 0.95)])
def test_run_durations_are_in_the_bucket_of_what_the_api_says(
    watchers: Watchers, told: Told, way: str, number: int, share: float
) -> None:
    seconds: dict[str, list[float]] = defaultdict(list)
    for one in told.runs:
        if one["ended_at"]:
            seconds[one["agent"]].append(one["ended_at"] - one["started_at"])
    bounds = (0.0, *names.AGENT_DURATION.bounds)

    def agree() -> bool:
        values = shown(watchers.ways[way], "Run duration", number)
        return set(values) == set(seconds) and all(
            bisect_left(bounds, values[agent]) == bisect_left(bounds, sorted(taken)[ceil(share * len(taken)) - 1])
            for agent, taken in seconds.items()
        )

    eventually(
        agree,
        what="the durations are the API's",
        state=lambda: (shown(watchers.ways[way], "Run duration", number), seconds),
    )


def test_what_nats_holds_is_what_it_says_itself(watchers: Watchers, told: Told) -> None:
    for way in watchers.ways.values():
        streams = {
            one["config"]["name"]: float(one["state"]["bytes"])
            for one in told.of_nats("STREAM.LIST")["streams"]
            if one["state"]["bytes"]
        }
        seen = shown(way, "NATS: bytes of each stream")
        assert {name: n for name, n in seen.items() if n} == pytest.approx(streams, rel=0.2)


def test_the_oldest_call_waits_since_the_api_says(watchers: Watchers, told: Told) -> None:
    (call,) = told.get("/v1/approvals")["approvals"]
    for way in watchers.ways.values():
        assert shown(way, "The oldest waits for")[""] == pytest.approx(time.time() - call["requested_at"], abs=10)


@pytest.mark.parametrize("way", ["scraped", "sent"])
def test_every_panel_has_data(watchers: Watchers, told: Told, way: str) -> None:
    of_the_collector = {"From a point to its trace"} if way == "scraped" else set()

    def silent() -> set[str]:
        return {
            title
            for title, panel in PANELS.items()
            if title not in of_the_collector
            and not all(shown(watchers.ways[way], title, number) for number in range(len(panel["targets"])))
        }

    # What has never happened here: what only some memories and models do.
    eventually(lambda: not silent(), what="every panel shows data", state=silent)

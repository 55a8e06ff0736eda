"""The cost of pages by the browser's own metrics: long runs and lists cost hardly more than short ones."""

import json
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, CDPSession, Page, Route, expect

from browser_console.observed import Errors
from cadre_gateway.routes.app import load_assets

TIMES = 3
"""Each is measured so often; the least counts, as other work on the machine only adds."""

PAGE_RUNS = 50

pytestmark = pytest.mark.timeout(300)


class Cost(NamedTuple):
    """The cost of a page: seconds of scripting, of layout with styles, of all work, and the nodes of its document."""

    script: float
    layout: float
    work: float
    nodes: int

    @property
    def seconds(self) -> float:
        return self.script + self.layout


def opened(browser: Browser, errors: Errors, answers: dict[str, str], address: str) -> tuple[Page, CDPSession]:
    """Opens the console with these answers by path, in place of a gateway, and counts what the page costs."""
    assets = load_assets()
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    errors.watch(page)

    def answer(route: Route) -> None:
        url = urlsplit(route.request.url)
        asset = assets.get(url.path.removeprefix("/").removeprefix("console/") or "index.html")
        if asset is not None:
            route.fulfill(body=asset.data, content_type=asset.media_type)
        elif url.path.endswith("/events"):
            route.fulfill(body=answers[url.path], content_type="text/event-stream")
        elif url.path == "/v1/runs" and url.path not in answers:
            route.fulfill(json=page_of(int(answers["runs"]), parse_qs(url.query)))
        else:
            route.fulfill(body=answers.get(url.path, "{}"), content_type="application/json")

    page.route("**/*", answer)
    measured = page.context.new_cdp_session(page)
    measured.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(f"http://console.test/#/{address}")
    return page, measured


def measure(page: Page, measured: CDPSession) -> Cost:
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    found = {one["name"]: one["value"] for one in measured.send("Performance.getMetrics")["metrics"]}
    nodes = page.evaluate("document.querySelectorAll('*').length")
    return Cost(
        found["ScriptDuration"], found["LayoutDuration"] + found["RecalcStyleDuration"], found["TaskDuration"], nodes
    )


ANSWERS = {
    "/v1/approvals": '{"approvals": [], "next": null}',
    "/v1/agents": '{"agents": []}',
    "/v1/session": '{"name": "", "roles": ["admin"], "rights": ["act", "administer", "decide", "read"],'
    ' "user": "", "own": false, "agents": [], "teams": []}',
}


def events_of(rows: int) -> str:
    """The events of a run of so many rows that has ended: a run, and steps with a model call and a tool call each."""
    at = 1_790_000_000.0
    over = {"state": "ok", "ended_at": at + 9}
    run = {"key": "run:a1", "parent": "", "run": "a1", "kind": "run", "name": "boss", "brief": "work", "facts": {}}
    made = [run | {"asked_at": at, "began_at": at, "events": [[1, 1]], **over}]
    for number in range(1, (rows - 1) // 3 + 1):
        step = {"key": f"step:a1:{number}", "parent": "run:a1", "run": "a1", "kind": "step", "name": f"Step {number}"}
        below = {"parent": step["key"], "run": "a1", "asked_at": at, "began_at": at, "events": [[number, 1]], **over}
        made.append(step | {"asked_at": at, "began_at": at, "events": [[number, 1]], **over})
        model = {"key": f"model:a1:{number}.1", "kind": "model", "name": "asks", "text": "so"}
        made.append(below | model | {"asked_for": {"step": number, "purpose": "act", "attempt": 1}})
        made.append(below | {"key": f"call:a1_{number}_0", "kind": "call", "name": "look", "brief": f"at={number}"})
    made += [made[1] | {"key": f"step:a1:x{one}", "name": "More"} for one in range(rows - len(made))]
    frames = [made[at : at + 50] for at in range(0, len(made), 50)]
    texts = [
        f"event: rows\nid: {seq}\ndata: {json.dumps({'seq': seq, 'rows': [{**one, 'seq': seq} for one in frame]})}\n\n"
        for seq, frame in enumerate(frames, start=1)
    ]
    return "".join([*texts, f"event: end\nid: {len(frames)}\ndata: {{}}\n\n"])


def summary(number: int) -> dict[str, object]:
    usage = {"input_tokens": 10, "output_tokens": 2, "cost": 0.5, "model_calls": 1}
    known = {"id": f"r{number}", "tree": f"r{number}", "agent": "boss", "task": f"Weigh parcel {number}.", "step": 1}
    times = {
        "asked_at": 1_790_000_000 + number,
        "started_at": 1_790_000_000 + number,
        "ended_at": 1_790_000_009 + number,
    }
    return {**known, **times, "state": "success", "approvals": 0, "usage": usage, "labels": {}}


def page_of(total: int, query: dict[str, list[str]]) -> dict[str, object]:
    """A page of so many runs, as the gateway has it."""
    limit, begin = int(query.get("limit", ["50"])[0]), int(query.get("before", ["0"])[0])
    end = min(begin + limit, total)
    return {
        "runs": [summary(total - at) for at in range(begin, end)],
        "next": str(end) if end < total else None,
        "total": total,
    }


def test_a_run_of_2000_rows_costs_at_most_three_times_one_of_200(browser: Browser, errors: Errors) -> None:
    best: dict[int, Cost] = {}
    for _ in range(TIMES):
        for rows in (200, 2000):
            answers = {**ANSWERS, "/v1/runs/a1/events": events_of(rows)}
            page, measured = opened(browser, errors, answers, "run/a1")
            page.wait_for_function(f"document.querySelector('.rows')?.clientHeight >= {rows * 20}")
            for share in (0.3, 0.6, 1):
                page.locator(".tree").evaluate(f"element => element.scrollTo(0, element.scrollHeight * {share})")
                expect(page.get_by_role("treeitem").first).to_be_visible()
            cost = measure(page, measured)
            best[rows] = min(best.get(rows, cost), cost, key=lambda one: one.seconds)
            page.context.close()
    print({rows: cost._asdict() for rows, cost in best.items()})
    assert best[2000].seconds <= 3 * best[200].seconds, best
    assert best[2000].work <= 3 * best[200].work, best
    assert best[2000].nodes <= best[200].nodes + 50, "only rows in view are elements"
    assert errors == []


def test_a_list_of_10000_runs_costs_no_more_than_one_of_100(browser: Browser, errors: Errors) -> None:
    best: dict[int, Cost] = {}
    for _ in range(TIMES):
        for total in (100, 10_000):
            page, measured = opened(browser, errors, {**ANSWERS, "runs": str(total)}, "runs")
            expect(page.locator(".runs tbody tr")).to_have_count(PAGE_RUNS)
            cost = measure(page, measured)
            best[total] = min(best.get(total, cost), cost, key=lambda one: one.seconds)
            page.locator(".runs tbody input").first.check()
            page.get_by_role("button", name="that fit").click()
            expect(page.get_by_role("region", name="Selection")).to_contain_text(f"{total:,} selected")
            expect(page.get_by_role("region", name="Selection")).to_contain_text(f"cost {total / 2:.2f}")
            selected = measure(page, measured)
            assert selected.nodes <= cost.nodes + 20, "what is selected elsewhere is no element"
            page.context.close()
    print({total: cost._asdict() for total, cost in best.items()})
    assert best[10_000].nodes == best[100].nodes
    assert best[10_000].seconds <= 1.3 * best[100].seconds, best
    assert errors == []

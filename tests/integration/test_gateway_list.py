"""The list of runs over HTTP and as `cadre runs` prints it: pages and filters."""

import asyncio
import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from cadre.cli.main import group
from cadre.cli.runs.runs import command as runs_command
from cadre.client.run_options import WantedRuns
from cadre.journal.events import ModelDeferred, RunFinished, WaitStarted
from cadre.protocol.usage import Usage
from integration.gateway_world import CALLED, World, new_run

DAY_SECONDS = 86_400.0


@pytest.fixture
def listing(world: World, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`cadre runs` with these words, at the world's gateway."""
    monkeypatch.setenv("CADRE_GATEWAY_URL", str(world.http.base_url))

    async def run(*words: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, group, ["runs", *words], prog_name="cadre")

    return run


async def test_the_list_has_pages_and_filters(world: World) -> None:
    runs = [new_run() for _ in range(5)]
    for run in runs:
        await world.finished_run(run, agent="pager")
    await world.listed(runs[-1], agent="pager", state="success")
    seen: list[str] = []
    query: dict[str, Any] = {"agent": "pager", "limit": 2}
    while True:
        page = (await world.http.get("/v1/runs", params=query)).json()
        seen += [one["id"] for one in page["runs"]]
        if page["next"] is None:
            break
        query["before"] = page["next"]
    assert seen == runs[::-1]
    assert (await world.http.get("/v1/runs", params={"agent": "pager", "state": "error"})).json()["runs"] == []


async def test_the_list_is_filtered_by_labels(world: World) -> None:
    run = new_run()
    scribe = world.scribe(run)
    labels = {"ticket": "a=b", "team": "red"}
    begun = scribe.accepted()
    await scribe.write(replace(begun, task=replace(begun.task, labels=labels)))
    assert (await world.listed(run, label=["ticket=a=b", "team"]))["labels"] == labels
    answer = await world.http.get("/v1/runs", params={"label": ["ticket=a=b", "team=blue"]})
    assert answer.json()["runs"] == []
    assert "NAME=VALUE" in (await world.http.get("/v1/runs", params={"label": "=x"})).json()["detail"]


async def test_the_command_line_and_the_client_have_each_filter_of_the_list(world: World) -> None:
    document = (await world.http.get("/openapi.json")).json()
    parameters = {one["name"] for one in document["paths"]["/v1/runs"]["get"]["parameters"]}
    options = {str(one.name) for one in runs_command.params if one.name != "output"}
    # All pages are asked for, up to --limit.
    assert {"parent" if name == "below" else name for name in options} == parameters - {"before"}
    wanted = {"label" if name == "labels" else name for name in WantedRuns.__annotations__}
    assert wanted == parameters - {"before", "count"}


async def test_the_command_line_filters_by_what_is_waited_for_by_time_and_by_cost(world: World, listing: Any) -> None:
    now = time.time()
    runs = {name: world.scribe(new_run(), "sorter") for name in ("old", "slow", "waits")}
    await runs["old"].write(runs["old"].accepted(at=now - 9 * DAY_SECONDS), CALLED)
    cheap, dear = Usage(5, 3, 1, cost=0.25), Usage(5, 3, 1, cost=12.5)
    await runs["old"].write(RunFinished(state="success", output=1, steps=1, usage=dear))
    await runs["slow"].write(runs["slow"].accepted(at=now - 2 * DAY_SECONDS), CALLED)
    await runs["slow"].write(ModelDeferred(step=1, attempt=1, until=9e9, reason="429", status=429))
    await runs["waits"].write(runs["waits"].accepted())
    await runs["waits"].write(WaitStarted(name="w", until=9e9, signal="paid"))
    extra = world.scribe(new_run(), "sorter")
    await extra.write(extra.accepted(), CALLED)
    await extra.write(RunFinished(state="success", output=1, steps=1, usage=cheap))
    await world.listed(extra.run, state="success")

    async def found(*words: str) -> set[str]:
        done = await listing("--agent", "sorter", "-o", "json", *words)
        assert done.exit_code == 0, done.stderr
        return {one["id"] for one in json.loads(done.stdout)}

    assert await found("--waiting-for", "model") == {runs["slow"].run}
    assert await found("--waiting-for", "signal paid") == {runs["waits"].run}
    assert await found("--since", "3d") == {runs["slow"].run, runs["waits"].run, extra.run}
    yesterday = datetime.fromtimestamp(now - DAY_SECONDS, UTC).isoformat()
    assert await found("--since", "3d", "--until", yesterday) == {runs["slow"].run}
    assert await found("--until", str(now - 8 * DAY_SECONDS)) == {runs["old"].run}
    assert await found("--min-cost", "0.25") == {runs["old"].run, extra.run}
    assert await found("--min-cost", "1") == {runs["old"].run}
    assert (await listing("--agent", "sorter", "--min-cost", "0.2", "--count")).stdout == "2\n"
    header, first, *_ = (await listing("--agent", "sorter", "--sort", "cost")).stdout.splitlines()
    assert (header.split()[5], first.split()[0], first.split()[5]) == ("COST", runs["old"].run, "12.5")


async def test_the_command_line_lists_as_many_as_are_asked_for_and_says_when_there_are_more(
    world: World, listing: Any
) -> None:
    for _ in range(3):
        await world.ended_run(agent="counted")
    cut = await listing("--agent", "counted", "--limit", "2")
    assert (len(cut.stdout.splitlines()), cut.stderr) == (3, "cadre: there are more: --limit shows them\n")
    # More than a page of the gateway may hold.
    whole = await listing("--agent", "counted", "--limit", "5000")
    assert (len(whole.stdout.splitlines()), whole.stderr) == (4, "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--waiting-for", "godot"], "NAME"),
        (["--since", "yesterday"], "'yesterday'"),
        (["--until", "12x"], "'12x'"),
        (["--min-cost", "-1"], "-1.0"),
        (["--state", "gone"], "'gone'"),
        (["--min-cost", "1", "rm", "@last"], "--min-cost"),
        (["--waiting-for", "time", "rm", "@last"], "--waiting-for"),
    ],
)
async def test_the_command_line_says_what_is_wrong_with_a_filter(listing: Any, words: list[str], said: str) -> None:
    done = await listing(*words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("agent=a&agent=b", "query.agent: it is there 2 times"),
        ("sort=cost&before=1795663000.0,ab", "sort=cost"),
        ("before=cost:1.0,ab", "sort=started"),
        ("before=nan,ab", "is not the `next` of a page"),
        ("min_cost=nan", "query.min_cost: Input should be a finite number"),
        ("since=nan", "'nan'"),
        ("limit=0", "query.limit: Input should be greater than or equal to 1"),
    ],
)
async def test_what_cannot_be_meant_is_refused_with_what_to_do(world: World, query: str, said: str) -> None:
    answer = await world.http.get(f"/v1/runs?{query}")
    assert answer.status_code == 422, answer.text
    assert said in answer.json()["detail"]


@pytest.mark.parametrize("sign", ['"', "*", "NEAR(", "-", "\0", "AND", "^", ":", "'", "日"])
async def test_every_sign_may_be_searched_for(world: World, sign: str) -> None:
    run = new_run()
    scribe = world.scribe(run)
    await scribe.write(scribe.accepted(f"Signs {sign} galore{sign}"))
    await world.listed(run, text="signs galore")
    for text in (sign, f"{sign}galore", f"galore{sign}", f"signs {sign}"):
        answer = await world.http.get("/v1/runs", params={"text": text})
        assert answer.status_code == 200, answer.text
    assert run in [one["id"] for one in answer.json()["runs"]]


async def test_no_run_that_fits_is_another_thing_than_no_run(world: World, listing: Any) -> None:
    await world.ended_run()
    listed = await listing("--min-cost", "1000000")
    assert (listed.stdout, len(listed.stderr.splitlines())) == ("", 1)
    assert "cadre run " not in listed.stderr

"""The list of runs over HTTP: pages and filters."""

from typing import Any

from msgspec.structs import replace

from integration.gateway_world import World, new_run


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
    assert (await world.http.get("/v1/runs", params={"agent": "pager", "state": "error"})).json()[
        "runs"
    ] == []


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

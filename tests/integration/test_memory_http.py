"""Tests of what agents remember as people see it: over HTTP and with `cadre memory`, against a real gateway and
service."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cadre.adapters.nats.streams import jetstream
from cadre.delivery.codec import decode
from cadre.errors import MemoryRefused
from cadre.protocol.memory import ShowRequest
from cadre.protocol.messages import MemoryScope, Origin, Task
from harness.patience import patience, until
from harness.texts import holds
from integration.gateway_world import GatewayProcess, World, new_run
from integration.memory_bench import EVERY, Bench, running_service


@pytest.fixture(scope="module")
def service(gateway: GatewayProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_service(gateway.settings, tmp_path_factory.mktemp("memory")) as url:
        yield url


@pytest.fixture
async def bench(gateway: GatewayProcess, service: str, tmp_path: Path) -> AsyncIterator[Bench]:
    async with Bench.open(gateway.settings, tmp_path) as one:
        yield one


def origin(writes: MemoryScope = "user", **whose: Any) -> Origin:
    return Origin(reads=EVERY, writes=writes, **whose)


async def asked(gateway: GatewayProcess, method: str, path: str, **options: Any) -> httpx2.Response:
    async with httpx2.AsyncClient(base_url=gateway.url, trust_env=False, timeout=patience()) as client:
        return await client.request(method, path, **options)


async def cadre(gateway: GatewayProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CADRE_GATEWAY_URL": gateway.url}
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "cadre.cli.main", "memory", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


async def test_without_a_service_the_gateway_says_so(gateway: GatewayProcess) -> None:
    """First of all, while none runs."""
    answer = await asked(gateway, "GET", "/v1/memory", params={"all": "true"})
    assert (answer.status_code, answer.json()["code"]) == (503, "memory-unavailable")
    assert "cadre memory" in answer.json()["detail"]
    told = await cadre(gateway, "list", "--all")
    assert told.returncode == 5
    assert "`cadre memory`" in told.stderr


async def test_search_list_and_show(bench: Bench, gateway: GatewayProcess) -> None:
    anna = bench.own("anna")
    memory = await bench.remember("The invoice of Bergmann was paid.", origin=origin(user=anna))
    await bench.remember("The printer is broken.", origin=origin(user=anna))
    body = {"query": "Bergmann invoice", "selection": {"user": anna}}
    found = await asked(gateway, "POST", "/v1/memory/search", json=body)
    assert found.status_code == 200, found.text
    assert found.json()["hits"][0]["memory"] == memory
    assert found.json()["degraded"] is True

    listed: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = await asked(gateway, "GET", "/v1/memory", params={"user": anna, "limit": 1, **after})
        listed += [one["text"] for one in page.json()["memories"]]
        if page.json()["next"] is None:
            break
        after = {"after": page.json()["next"]}
    assert sorted(listed) == ["The invoice of Bergmann was paid.", "The printer is broken."]

    shown = (await asked(gateway, "GET", f"/v1/memory/{memory}")).json()["memories"]
    assert [(one["text"], one["user"], one["agent"]) for one in shown] == [
        ("The invoice of Bergmann was paid.", anna, bench.agent)
    ]


async def test_a_memory_longer_than_any_message_is_shown_whole(bench: Bench, gateway: GatewayProcess) -> None:
    text = "\n".join(f"Line {n} of the long report says {n * 13}." for n in range(28_000))
    memory = await bench.remember(text, origin=origin(user=bench.own("anna")))
    begun = await bench.people.show(ShowRequest(memory=memory))
    assert begun.next == str(len(begun.memories))
    assert [one.index for one in begun.memories] == list(range(len(begun.memories)))
    shown = (await asked(gateway, "GET", f"/v1/memory/{memory}")).json()
    chunks = shown["memories"]
    assert [one.get("index", 0) for one in chunks] == list(range(chunks[0]["count"]))
    assert (shown["next"], len(chunks) > len(begun.memories)) == (None, True)
    told = await cadre(gateway, "show", memory)
    assert (told.returncode, told.stderr) == (0, "")
    assert set(text.splitlines()) <= set(told.stdout.splitlines())
    with pytest.raises(MemoryRefused, match="`next`"):
        await bench.people.show(ShowRequest(memory=memory, after="later"))


async def test_a_list_of_those_of_a_time(bench: Bench, gateway: GatewayProcess) -> None:
    anna = bench.own("anna")
    await bench.remember("The invoice was paid.", origin=origin(user=anna))
    for option, count in (("since", 1), ("until", 0)):
        found = await asked(gateway, "GET", "/v1/memory", params={"user": anna, option: "1h"})
        assert len(found.json()["memories"]) == count
        told = await cadre(gateway, "list", "--user", anna, f"--{option}", "1h", "-o", "json")
        assert len(json.loads(told.stdout)) == count
    told = await cadre(gateway, "list", "--user", anna, "--since", "soon")
    assert "'soon'" in told.stderr


async def test_forgetting_one_and_all_of_a_selection(bench: Bench, gateway: GatewayProcess) -> None:
    anna = bench.own("anna")
    first = await bench.remember("One.", origin=origin(user=anna))
    for text in ("Two.", "Three."):
        await bench.remember(text, origin=origin(user=anna))
    assert (await asked(gateway, "DELETE", f"/v1/memory/{first}")).json()["forgotten"] == 1
    again = await asked(gateway, "DELETE", f"/v1/memory/{first}")
    assert (again.status_code, again.json()["code"]) == (404, "unknown-memory")
    preview = await asked(gateway, "DELETE", "/v1/memory", params={"scope": "user", "user": anna})
    assert (preview.json()["matched"], preview.json()["forgotten"]) == (2, 0)
    whole = {"scope": "user", "user": anna, "confirm": "true"}
    receipt = (await asked(gateway, "DELETE", "/v1/memory", params=whole)).json()
    assert (receipt["forgotten"], receipt["left"], receipt["confirmed"]) == (2, 0, True)


async def test_an_export_has_every_chunk_on_a_line(bench: Bench, gateway: GatewayProcess) -> None:
    anna = bench.own("anna")
    for number in range(3):
        await bench.remember(f"Memory {number}.", origin=origin(user=anna))
    long = " ".join(f"Word {number} of many." for number in range(2000))
    await bench.remember(long, origin=origin(user=anna))
    answer = await asked(gateway, "GET", "/v1/memory/export", params={"user": anna})
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    kept = await bench.everything()
    assert len(lines) == len(kept) > 10
    assert {line["id"]: line["text"] for line in lines} == {one.id: one.text for one in kept}


async def test_what_was_exported_is_there_again_after_an_import(
    bench: Bench, gateway: GatewayProcess, tmp_path: Path
) -> None:
    anna, file = bench.own("anna"), tmp_path / "anna.jsonl"
    await bench.remember("The invoice of Bergmann was paid.", origin=origin(user=anna))
    long = "\n".join(f"Word {number} of many." for number in range(9000))
    await bench.remember(long, origin=origin(user=anna))

    async def exported() -> list[dict[str, Any]]:
        assert (await cadre(gateway, "export", "--user", anna, "-o", str(file))).returncode == 0
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        return sorted(({**line, "embedded": None} for line in lines), key=lambda line: str(line["id"]))

    before = await exported()
    kept = file.read_bytes()
    assert len(before) > 50, "more than one request takes"
    assert (await cadre(gateway, "forget", "--user", anna, "--yes")).returncode == 0
    assert await exported() == []
    for _ in range(2):
        file.write_bytes(kept)
        told = await cadre(gateway, "import", str(file))
        assert (told.returncode, told.stdout) == (0, f"kept: {len(before)}\n"), told.stderr
        assert await exported() == before
    found = await asked(
        gateway,
        "POST",
        "/v1/memory/search",
        json={"query": "Bergmann invoice", "selection": {"user": anna}},
    )
    assert found.json()["hits"][0]["text"] == "The invoice of Bergmann was paid."
    moved = json.dumps({**before[0], "memory": "another", "embedded": False})
    file.write_text(moved + "\n")
    told = await cadre(gateway, "import", str(file))
    assert holds(told.stderr, before[0]["id"], "'another'")


@pytest.mark.parametrize(
    ("method", "path", "options", "expected"),
    [
        ("GET", "/v1/memory", {}, (422, "whose memories")),
        ("GET", "/v1/memory?scope=user", {}, (422, "whose memories")),
        (
            "GET",
            "/v1/memory?usr=anna",
            {},
            (422, "unknown parameter; known parameters: kind, since, until, limit, after, scope"),
        ),
        ("GET", "/v1/memory?all=true&user=anna", {}, (422, "leave out user")),
        ("GET", "/v1/memory?all=true&since=inf", {}, (422, "since")),
        ("GET", "/v1/memory?all=true&after=junk", {}, (422, "after")),
        ("DELETE", "/v1/memory?confirm=true", {}, (422, "whose memories")),
        ("GET", "/v1/memory/export", {}, (422, "whose memories")),
        ("GET", "/v1/memory/nothing_1_0", {}, (404, "'nothing_1_0'")),
        ("POST", "/v1/memory/search", {"json": {"query": "x"}}, (422, "selection")),
        (
            "POST",
            "/v1/memory/search",
            {"json": {"query": " ", "selection": {"all": True}}},
            (422, "is empty"),
        ),
        (
            "POST",
            "/v1/memory/search",
            {"json": {"query": "x", "selection": {"all": True}, "k": 900}},
            (422, "k=900"),
        ),
        ("POST", "/v1/memory/search", {"json": {"query": "x", "selection": {"usr": "a"}}}, (422, "usr")),
        ("POST", "/v1/memory/search", {"content": b"{"}, (400, "JSON object")),
    ],
)
async def test_bad_requests_say_what_to_change(
    bench: Bench, gateway: GatewayProcess, method: str, path: str, options: Any, expected: tuple[int, str]
) -> None:
    answer = await asked(gateway, method, path, **options)
    assert answer.status_code == expected[0], answer.text
    assert expected[1] in answer.json()["detail"]


async def test_the_description_has_the_routes(gateway: GatewayProcess) -> None:
    paths = (await asked(gateway, "GET", "/openapi.json")).json()["paths"]
    assert set(paths["/v1/memory"]) == {"get", "delete"}
    assert {one["name"] for one in paths["/v1/memory"]["get"]["parameters"]} >= {"user", "all", "kind"}


# --- cadre memory


async def test_the_command_line_finds_shows_and_forgets(bench: Bench, gateway: GatewayProcess) -> None:
    anna = bench.own("anna")
    memory = await bench.remember("The ferry leaves at nine.\x1b[2J", origin=origin(user=anna))
    found = await cadre(gateway, "search", "ferry", "--user", anna)
    assert found.returncode == 0, found.stderr
    assert memory in found.stdout
    assert "\x1b" not in found.stdout
    assert "no embeddings" in found.stderr
    rows = json.loads((await cadre(gateway, "list", "--user", anna, "-o", "json")).stdout)
    assert [row["memory"] for row in rows] == [memory]
    shown = await cadre(gateway, "show", memory)
    assert "The ferry leaves at nine." in shown.stdout
    assert anna in shown.stdout
    lines = (await cadre(gateway, "export", "--user", anna)).stdout.splitlines()
    assert [json.loads(line)["memory"] for line in lines] == [memory]
    everybodys = await cadre(gateway, "forget", "--user", "", "--scope", "user", "--yes")
    assert (everybodys.returncode, "user is empty" in everybodys.stderr) == (2, True)
    unsure = await cadre(gateway, "forget", "--user", anna)
    assert (unsure.returncode, "say --yes" in unsure.stderr) == (2, True)
    gone = await cadre(gateway, "forget", "--user", anna, "--yes")
    assert gone.stdout == "forgotten: 1, left: 0\n"
    missing = await cadre(gateway, "show", memory)
    assert (missing.returncode, memory in missing.stderr) == (4, True)


@pytest.mark.parametrize("verb", [["list"], ["forget"], ["export"], ["search", "x"], ["list", "--scope", "user"]])
async def test_the_command_line_wants_to_know_whose(gateway: GatewayProcess, verb: list[str]) -> None:
    told = await cadre(gateway, *verb)
    assert told.returncode == 2
    assert "whose" in told.stderr


# --- whose run it is


async def test_a_run_says_for_whom_it_is(world: World) -> None:
    body = {"agent": "boss", "task": "Do it.", "user": "anna", "session": "s-origin"}
    run = (await world.http.post("/v1/runs", json=body)).json()["id"]
    wrong = await world.http.post("/v1/runs", json={**body, "user": "a\nb"})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid-request")
    assert "user" in wrong.json()["detail"]
    topology = world.topology
    held = await jetstream.last(world.nc, topology.stream_of(run), topology.inbox("boss", "gateway", run, run))
    assert held is not None
    task = decode(held.data, Task)
    assert task.origin == Origin(user="anna", session="s-origin", root=task.agent)


async def test_erasing_a_run_takes_its_own_memories_along(bench: Bench, world: World, gateway: GatewayProcess) -> None:
    run = new_run()
    await world.finished_run(run)
    await bench.remember("Only for this run.", tree=run, origin=origin("run"))
    shared = await bench.remember("For all my runs.", tree=run, origin=origin("agent"), place="2_0")
    await world.listed(run, state="success")
    erased = await asked(gateway, "DELETE", f"/v1/runs/{run}")
    assert erased.status_code == 200, erased.text

    async def gone() -> bool:
        return [one.memory for one in await bench.everything()] == [shared]

    await until(gone)

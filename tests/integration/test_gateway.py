"""The gateway's requests, as a real process over a real nats-server; the tests write the journals it reports."""

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from cadre.adapters.nats.registry import NatsRegistry
from cadre.engine.toolset import card_of
from cadre.journal import events as ev
from cadre.protocol.cards import Presence, SandboxCard, ToolCard
from cadre.protocol.topology import call_id, run_id_of
from cadre.spec.agent import AgentSpec
from harness.patience import until
from integration.gateway_world import CALLED, FINISHED, World, new_run, sse_events

PIXEL = b"\x89PNG\r\n\x1a\n not much of an image"


# --- list and detail


async def test_list_and_detail_tell_a_tree(world: World) -> None:
    run = new_run()
    child, grandchild = call_id(run, 1, 0), call_id(call_id(run, 1, 0), 1, 0)
    root, member = world.scribe(run), world.scribe(child, "helper", run)
    await root.write(root.accepted("Ask the helper.", session="s-list"), CALLED)
    await root.write(ev.DelegateStarted(call=child, member="helper", task="Help."))
    await member.write(member.accepted("Help."), CALLED)
    below = world.scribe(grandchild, "deep", child)
    await below.write(below.accepted("Deeper."))
    await member.write(FINISHED)

    listed = await world.listed(run, agent="boss", state="running", session="s-list")
    assert (listed["task"], listed["parent"], listed["tree"]) == ("Ask the helper.", None, run)
    assert set(listed) == {
        *("id", "tree", "parent", "agent", "task", "state", "step", "asked_at", "started_at", "ended_at"),
        *("usage", "session", "user", "error", "waiting_for", "approvals", "labels", "revision"),
    }

    found = (await world.http.get(f"/v1/runs/{run}")).json()
    assert found["output"] is None
    assert "memory" not in found
    (first,) = found["children"]
    assert (first["id"], first["agent"], first["state"], first["output"]) == (
        *(child, "helper", "success"),
        {"answer": 42},
    )
    assert [one["id"] for one in first["children"]] == [grandchild]

    of_child = (await world.http.get(f"/v1/runs/{child}", params={"full": "true"})).json()
    assert of_child["parent"] == run
    assert [step["type"] for step in of_child["memory"]] == ["task", "answer"]


async def test_a_run_that_waits_for_its_model_says_so(world: World) -> None:
    run = new_run()
    scribe = world.scribe(run)
    await scribe.write(scribe.accepted(), CALLED)
    await scribe.write(ev.ModelDeferred(step=1, attempt=1, until=9e9, reason="429", status=429))
    assert (await world.listed(run, state="waiting"))["state"] == "waiting"


async def test_the_directory_tells_who_is_there_and_what_is_missing(world: World) -> None:
    (agent,) = (await world.http.get("/v1/agents")).json()["agents"]
    assert (agent["name"], agent["labels"], agent["team"]) == ("boss", {"role": "lead"}, ["helper"])
    assert agent["missing"] == ["add", "gone", "helper"]
    about = {
        "instance": "t1",
        "host": "h",
        "pid": 1,
        "health": "",
        "started_at": 1.0,
        "revision": "",
        "spec": "",
        "prompts": "",
    } | {"skew": 0.0}
    assert (agent["replicas"], agent["differing"]) == ([about], [])
    assert (await world.http.get("/v1/tools")).json() == {"tools": []}

    card = ToolCard(name="add", description="Adds.", input_schema={"type": "object"}, read_only=True)
    other = NatsRegistry(world.nc, world.topology)
    await other.announce([Presence(instance="t2", host="h", pid=2, started_at=2.0, tool=card)])

    async def ask() -> list[dict[str, Any]]:
        return list((await world.http.get("/v1/tools")).json()["tools"])

    tools = await until(ask)
    assert (tools[0]["name"], tools[0]["read_only"], tools[0]["replicas"][0]["pid"]) == ("add", True, 2)
    assert (await world.http.get("/v1/agents")).json()["agents"][0]["missing"] == ["gone", "helper"]
    await other.withdraw()


async def test_the_directory_tells_what_live_agents_expect_in_vain(world: World) -> None:
    flow = {
        "kind": "workflow",
        "start": "a",
        "steps": {"a": {"agent": {"name": "judge", "task": "t"}, "next": "b"}},
    }
    flow["steps"]["b"] = {"end": "{{ a.verdict }}"}  # type: ignore[index]
    schema = {"type": "object", "properties": {"grade": {"type": "string"}}}
    specs = [
        {"name": "flow", "description": "d", "kind": "workflow", "team": ["judge"], "sections": [flow]},
        {"name": "judge", "description": "d", "output_schema": schema},
    ]
    registries = [NatsRegistry(world.nc, world.topology) for _ in specs]
    for number, (spec, registry) in enumerate(zip(specs, registries, strict=True)):
        ref = await world.blobs.put(msgspec.json.encode(spec))
        card = card_of(msgspec.convert(spec, AgentSpec))
        presence = Presence(instance=f"c{number}", host="h", pid=1, started_at=1.0, agent=card, spec=ref)
        await registry.announce([presence])

    async def ask() -> list[dict[str, Any]] | None:
        agents = (await world.http.get("/v1/agents")).json()["agents"]
        return next((one["problems"] for one in agents if one["name"] == "flow" and one["problems"]), None)

    (problem,) = await until(ask)
    assert (problem["level"], problem["path"]) == ("error", "spec.workflow.steps.b.end.output")
    assert "reads a.verdict, which the output_schema of agent judge does not have" in problem["text"]
    for registry in registries:
        await registry.withdraw()


async def test_the_directory_tells_which_code_can_be_run(world: World) -> None:
    assert (await world.http.get("/v1/sandboxes")).json() == {"sandboxes": []}
    others = [NatsRegistry(world.nc, world.topology) for _ in range(3)]
    for n, (pool, tier) in enumerate((("heavy", "ns"), ("heavy", "landlock"), ("default", "ns"))):
        card = SandboxCard(pool=pool, tier=tier, sessions=4, version="1", python=f"3.1{n}")
        await others[n].announce([Presence(instance=f"s{n}", host="h", pid=n, started_at=n, sandbox=card)])

    async def ask() -> list[dict[str, Any]] | None:
        found = (await world.http.get("/v1/sandboxes")).json()["sandboxes"]
        return found if sum(len(pool["replicas"]) for pool in found) == len(others) else None

    default, heavy = await until(ask)
    assert (default["pool"], default["tier"], default["sessions"]) == ("default", "ns", 4)
    # No better than where it is least.
    assert (heavy["pool"], heavy["tier"], heavy["sessions"]) == ("heavy", "landlock", 8)
    assert (default["python"], heavy["python"]) == ("3.12", "3.10, 3.11")
    assert [replica["instance"] for replica in heavy["replicas"]] == ["s0", "s1"]
    for other in others:
        await other.withdraw()


# --- starting runs


async def test_a_task_reaches_its_agents_inbox(world: World) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    image = "data:image/png;base64," + base64.b64encode(PIXEL).decode()
    answer = await world.http.post(
        "/v1/runs",
        json={
            "agent": "boss",
            "task": "Look.",
            "inputs": {"n": 1},
            "images": [image],
            "max_steps": 3,
            "labels": {"ticket": "4711", "app/name": ""},
        },
        headers={"traceparent": trace},
    )
    assert answer.status_code == 202
    body = answer.json()
    run = body["id"]
    assert answer.headers["location"] == body["links"]["self"] == f"/v1/runs/{run}"
    assert (body["agent"], body["state"]) == ("boss", "queued")
    assert run == run.lower()
    assert "_" not in run

    task = await world.history.task(run, run)
    assert task is not None
    assert (task.id, task.agent, task.task, task.max_steps) == (f"{run}:task", "boss", "Look.", 3)
    assert (task.inputs, task.trace) == ({"n": 1}, trace)
    assert task.labels == {"ticket": "4711", "app/name": ""}
    assert await world.blobs.get(task.images[0]) == PIXEL

    pending = (await world.http.get(f"/v1/runs/{run}")).json()
    assert (pending["state"], pending["task"], pending["children"]) == ("queued", "Look.", [])


async def test_a_client_may_wait_for_the_result(world: World) -> None:
    key = new_run()
    request = {"agent": "boss", "task": "Wait.", "return_full_result": True}
    first = await world.http.post("/v1/runs", json=request, headers={"Idempotency-Key": key, "Prefer": "wait=1"})
    assert first.status_code == 202
    run = first.json()["id"]

    waiting = asyncio.create_task(
        world.http.post("/v1/runs", json=request, headers={"Idempotency-Key": key, "Prefer": "wait=15"})
    )
    await world.finished_run(run)
    answer = await waiting
    assert answer.status_code == 200
    result = answer.json()
    assert (result["id"], result["state"], result["output"], result["error"]) == (
        run,
        "success",
        {"answer": 42},
        None,
    )
    assert (result["steps"], result["usage"]["input_tokens"]) == (1, 5)
    assert [step["type"] for step in result["memory"]] == ["task", "answer"]


async def test_a_post_may_answer_with_the_events(world: World) -> None:
    key = new_run()
    async with world.http.stream(
        "POST",
        "/v1/runs",
        json={"agent": "boss", "task": "Stream.", "stream": True},
        headers={"Idempotency-Key": key},
    ) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["location"] == f"/v1/runs/{run_id_of('boss', '', key)}"
        await world.finished_run(run_id_of("boss", "", key))
        names = [one.name async for one in sse_events(answer)]
    assert names == ["run.accepted", "model.called", "run.finished", "end"]


@pytest.mark.parametrize(
    ("body", "status", "code", "says"),
    [
        (b"{", 400, "invalid-request", "JSON"),
        (b"[]", 422, "invalid-request", "object"),
        (b'{"agent":"boss","task":"  "}', 422, "invalid-request", "task is empty"),
        (b'{"agent":"boss"}', 422, "invalid-request", "task"),
        (b'{"agent":"boss","task":7}', 422, "invalid-request", "$.task"),
        (b'{"agent":"boss","task":"x","images":["file:///etc/passwd"]}', 422, "invalid-request", "images[0]"),
        pytest.param(
            b'{"agent":"boss","task":"x","inputs":{"a":' + b"[" * 5000 + b"]" * 5000 + b"}}",
            *(400, "invalid-request", "nested too deeply"),
            id="nesting",
        ),
        (b'{"agent":"boss","task":"x","taks":1}', 422, "invalid-request", "'taks'"),
        (b'{"agent":"boss","task":"x","max_steps":0}', 422, "invalid-request", "max_steps"),
        (
            b'{"agent":"boss","task":"x","max_steps":99999999999999999999}',
            422,
            "invalid-request",
            "max_steps",
        ),
        (b'{"agent":"boss","task":"\xff"}', 400, "invalid-request", "UTF-8"),
        (b'{"agent":"boss","task":"x","inputs":[]}', 422, "invalid-request", "inputs"),
        (b'{"agent":"boss","task":"x","session":"a.b"}', 422, "invalid-request", "'a.b'"),
        (b'{"agent":"boss","task":"x","labels":{"a b":"c"}}', 422, "invalid-request", "labels: 'a b'"),
        (b'{"agent":"boss","task":"x","labels":{"a":1}}', 422, "invalid-request", "labels"),
        (b'{"agent":"boss","task":"x","reset":true}', 422, "invalid-request", "session"),
        (b'{"agent":"boss","task":"x","images":["http://a/b.png"]}', 422, "invalid-request", "images[0]"),
        (
            b'{"agent":"boss","task":"x","images":["data:image/png;base64,?"]}',
            422,
            "invalid-request",
            "base64",
        ),
        (b'{"agent":"bos","task":"x"}', 404, "unknown-agent", "there are: boss"),
    ],
)
async def test_a_bad_request_is_told_what_is_wrong(
    world: World, body: bytes, status: int, code: str, says: str
) -> None:
    answer = await world.http.post("/v1/runs", content=body)
    problem = answer.json()
    assert (answer.status_code, problem["status"], problem["code"]) == (status, status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert says in problem["detail"]
    assert "\n" not in problem["detail"]
    assert problem["type"].endswith(f"/{code}")
    assert problem["instance"] == "/v1/runs"


async def test_a_body_over_the_limit_is_refused(world: World) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(33):
            yield b" " * 1024 * 1024

    answer = await world.http.post("/v1/runs", content=chunks())
    assert (answer.status_code, answer.json()["code"]) == (413, "too-large")
    assert "PUT" in answer.json()["detail"]
    answer = await world.http.put("/v1/runs/r/files/f", content=chunks())
    assert (answer.status_code, answer.json()["code"]) == (413, "too-large")
    assert "16777216 bytes, which CADRE_FILE_BYTES" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/runs/nobody", 404, "unknown-run"),
        ("GET", "/v1/runs/a.b", 404, "unknown-run"),
        ("GET", "/v1/runs/*", 404, "unknown-run"),
        ("GET", "/v1/runs/nobody/events", 404, "unknown-run"),
        ("POST", "/v1/runs/nobody/cancel", 404, "unknown-run"),
        ("GET", "/v1/runs?limit=0", 422, "invalid-request"),
        ("GET", "/v1/runs?limit=1001", 422, "invalid-request"),
        ("GET", "/v1/runs?status=error", 422, "invalid-request"),
        ("GET", "/v1/runs/nobody?ful=true", 422, "invalid-request"),
        ("GET", "/v1/agents?name=boss", 422, "invalid-request"),
        ("GET", "/v1/runs?state=tired", 422, "invalid-request"),
        ("GET", "/v1/runs?before=nobody", 422, "invalid-request"),
        ("GET", "/v1/nothing", 404, "not-found"),
        ("DELETE", "/v1/runs", 405, "method-not-allowed"),
    ],
)
async def test_a_bad_path_is_a_problem(world: World, method: str, path: str, status: int, code: str) -> None:
    answer = await world.http.request(method, path)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("PATCH", "/v1/runs", "GET, POST"), ("POST", "/v1/runs/a/files/b/c", "DELETE, GET, PUT")],
)
async def test_a_method_that_there_is_not_is_told_the_others(
    world: World, method: str, path: str, allowed: str
) -> None:
    answer = await world.http.request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


@pytest.mark.parametrize(
    ("headers", "is_let_in"),
    [
        ({"Origin": "https://evil.example"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": "HOST", "Sec-Fetch-Site": "cross-site"}, False),
        ({"Origin": "https://evil.example", "Sec-Fetch-Site": "same-site"}, False),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, False),
        ({"Origin": "HOST"}, True),
        ({"Origin": "https://public.example", "Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
    ],
)
async def test_pages_of_other_sites_start_no_runs(world: World, headers: dict[str, str], is_let_in: bool) -> None:
    sent = {name: value.replace("HOST", str(world.http.base_url).rstrip("/")) for name, value in headers.items()}
    body = b'{"agent":"boss","task":"x"}'
    answer = await world.http.post("/v1/runs", content=body, headers={"Content-Type": "text/plain", **sent})
    if is_let_in:
        assert answer.status_code == 202, answer.text
    else:
        assert (answer.status_code, answer.json()["code"]) == (403, "cross-origin")


async def test_a_link_to_the_gateway_can_be_followed(world: World) -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert (await world.http.get("/v1/agents", headers=headers)).status_code == 200
    headers["Sec-Fetch-Mode"] = "no-cors"
    assert (await world.http.get("/v1/agents", headers=headers)).status_code == 403


async def test_an_unknown_parameter_is_named_beside_the_known_ones(world: World) -> None:
    detail = (await world.http.get("/v1/runs?status=error")).json()["detail"]
    named, known = detail.split(":", 1)
    assert named == "query.status"
    assert {"agent", "member", "state", "label", "before"} <= set(known.replace(",", " ").split())


async def test_the_api_describes_itself(world: World) -> None:
    document = (await world.http.get("/openapi.json")).json()
    assert {"/v1/runs", "/v1/runs/{run}", "/v1/runs/{run}/events", "/v1/agents"} <= set(document["paths"])
    text = str(document)
    references = {part.split("'")[0] for part in text.split("'#/components/schemas/")[1:]}
    schemas = document["components"]["schemas"]
    assert references <= set(schemas)
    assert {"RunAccepted", "BlockStarted", "RunFinished"} <= set(schemas), "what an event of a stream may be"
    for path, kind in (
        ("", "application/json"),
        ("/{run}/events", "text/event-stream"),
        ("/{run}/files/{path}", "application/octet-stream"),
    ):
        assert list(document["paths"][f"/v1/runs{path}"]["get"]["responses"]["200"]["content"]) == [kind]

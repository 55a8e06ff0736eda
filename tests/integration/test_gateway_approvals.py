"""Held calls as the gateway says of them and decides on them; the journals are written here, no agent works."""

import asyncio
import time
from typing import Any

import pytest

from cadre.adapters.nats.streams import jetstream
from cadre.delivery.codec import unpack_record
from cadre.journal import events as ev
from cadre.protocol.cards import ToolCard
from cadre.protocol.messages import Decision, Origin, ReplyTo, Task
from cadre.protocol.topology import call_id, task_id
from cadre.spec.agent import AgentSpec
from harness.patience import until
from integration.gateway_world import GatewayProcess, Scribe, World, entered, new_run

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

REFUND = ToolCard(
    name="refund",
    description="Pays money back.",
    input_schema={
        "type": "object",
        "properties": {"amount": {"type": "number"}, "note": {"type": "string"}},
        "required": ["amount"],
    },
)


async def held(world: World, agent: str = "clerk", *calls: dict[str, Any], **given: Any) -> tuple[Scribe, list[str]]:
    """A run of an agent that is not there, with these calls held back, and their ids."""
    run = new_run()
    scribe = world.scribe(run, agent)
    task = Task(id=task_id(run), tree=run, run=run, at=time.time(), agent=agent, task="Refund.", inputs=given)
    spec = AgentSpec(name=agent, description="Refunds.", tools=["refund"], approvals={"refund": "always"})
    await scribe.write(
        ev.RunAccepted(task=task, spec=spec, decided_by="tool_calling"),
        ev.ToolsetChanged(tools=[REFUND], members=[]),
        ev.ModelCalled(purpose="act", step=1, attempt=1, cause=task.id),
    )
    ids = [call_id(run, 1, index) for index in range(len(calls))]
    await scribe.write(
        ev.ModelAnswered(purpose="act", step=1, attempt=1, content=""),
        *(
            ev.ApprovalRequested(call=one, name="refund", kind="tool", arguments=arguments, reason="always")
            for one, arguments in zip(ids, calls, strict=True)
        ),
    )
    await listed(world, ids)
    return scribe, ids


async def listed(world: World, ids: list[str]) -> list[dict[str, Any]]:
    """The run's calls in the list, once all of them are."""

    async def ask() -> list[dict[str, Any]] | None:
        run = ids[0].rsplit("_", 2)[0]
        found: list[dict[str, Any]] = (await world.http.get("/v1/approvals", params={"run": run})).json()["approvals"]
        return found if len(found) == len(ids) else None

    return await until(ask)


async def decide(world: World, call: str, verdict: str, user: str = "", **fields: Any) -> tuple[int, dict[str, Any]]:
    headers = {"traceparent": CALLER} | ({"Cadre-User": user} if user else {})
    answer = await world.http.post(f"/v1/approvals/{call}", json={"verdict": verdict, **fields}, headers=headers)
    return answer.status_code, answer.json()


async def decisions(world: World, run: str) -> list[Decision]:
    """All decisions in the inbox of the run's agent."""
    stream, subject = world.topology.stream_of(run), world.topology.inbox_of_run(run, run)
    query = {"seq": 1, "batch": 100, "next_by_subj": subject}
    records = [await unpack_record(one.data, world.blobs) for one in await jetstream.batch(world.nc, stream, query)]
    return [record for record in records if isinstance(record, Decision)]


async def test_a_decision_for_an_absent_agent_lies_in_its_inbox(world: World) -> None:
    scribe, (call,) = await held(world, "clerk", {"amount": 500})
    started = time.monotonic()
    status, body = await decide(world, call, "approved", user="ann", by="bob", feedback="fine")
    assert (status, body["verdict"], body["by"], body["at"]) == (202, "approved", "ann", None)
    assert time.monotonic() - started < 4
    (record,) = await decisions(world, scribe.run)
    assert (record.call, record.verdict, record.sender, record.feedback) == (call, "approved", "ann", "fine")
    assert (record.run, record.tree, record.trace) == (scribe.run, scribe.run, CALLER)

    await decide(world, call, "rejected", user="carl")
    first, second = await decisions(world, scribe.run)
    assert first.id != second.id
    # The agent, back again, takes the second one up first.
    await scribe.write(ev.ApprovalDecided(call=call, verdict="rejected", sender="carl"), ev.StepFinished(step=1))
    assert (await decide(world, call, "approved"))[0] == 409
    status, body = await decide(world, call, "rejected")
    assert (status, body["by"]) == (200, "carl")


@pytest.mark.parametrize("charset", ["utf-8", "latin-1"])
async def test_who_decides_is_told_in_any_script(world: World, charset: str) -> None:
    _, (call,) = await held(world, "clerk", {"amount": 500})
    name = "Zoë" if charset == "latin-1" else "Zoë Łęcka 王"
    answer = await world.http.post(
        f"/v1/approvals/{call}", json={"verdict": "approved"}, headers={b"Cadre-User": name.encode(charset)}
    )
    assert (answer.status_code, answer.json()["by"]) == (202, name)


async def test_an_agent_that_does_not_answer_is_not_waited_for_for_ever(world: World) -> None:
    """`boss` is alive as far as anybody knows."""
    _, (call,) = await held(world, "boss", {"amount": 500})
    started = time.monotonic()
    status, body = await decide(world, call, "approved")
    assert (status, body["at"], body["by"]) == (202, None, "gateway")
    assert 4 < time.monotonic() - started < 15


async def test_the_answer_comes_with_the_entry_that_accounts_for_the_decision(world: World) -> None:
    scribe, (call,) = await held(world, "boss", {"amount": 500})
    asking = asyncio.create_task(decide(world, call, "corrected", arguments={"amount": 5}))

    [record] = await until(lambda: decisions(world, scribe.run))
    scribe.cause = record.id
    await scribe.write(
        ev.ApprovalDecided(call=call, verdict="corrected", sender="gateway", arguments={"amount": 5}),
        ev.ToolCalled(call=call, tool="refund", arguments={"amount": 5}),
    )
    status, body = await asking
    assert (status, body["verdict"], body["arguments"], body["tool"]) == (
        200,
        "corrected",
        {"amount": 5},
        None,
    )
    approval = (await world.http.get(f"/v1/approvals/{call}")).json()
    assert (approval["state"], approval["arguments"], approval["decision"]) == (
        "decided",
        {"amount": 500},
        body,
    )
    assert (await decide(world, call, "corrected", arguments={"amount": 5}))[0] == 200
    assert (await decide(world, call, "corrected", arguments={"amount": 6}))[0] == 409


async def test_a_correction_that_the_agent_cannot_make_is_told(world: World) -> None:
    """The schema that it was checked against has changed meanwhile."""
    scribe, (call,) = await held(world, "boss", {"amount": 500})
    asking = asyncio.create_task(decide(world, call, "corrected", arguments={"amount": 5}))

    [sent] = await until(lambda: decisions(world, scribe.run))
    scribe.cause = sent.id
    await scribe.write(ev.RecordIgnored(kind="Decision", code="invalid-correction", detail="gone"))
    status, body = await asking
    assert (status, "goes on waiting" in body["detail"]) == (422, True)


async def test_large_arguments_are_cut_in_the_list_and_whole_in_the_detail(world: World) -> None:
    note = "long " * 100_000
    _, ids = await held(world, "clerk", {"amount": 500, "note": note}, {"amount": "limit"}, limit=900)
    small, large = await listed(world, ids)
    assert (large["cut"], large["arguments"]["amount"], len(large["arguments"]["note"])) == (True, 500, 200)
    assert small["cut"] is False
    assert large["schema"] == REFUND.input_schema
    whole = (await world.http.get(f"/v1/approvals/{ids[0]}")).json()
    assert (whole["cut"], whole["arguments"]["note"]) == (False, note)
    named = (await world.http.get(f"/v1/approvals/{ids[1]}")).json()
    assert (named["arguments"], named["values"]) == ({"amount": "limit"}, {"amount": 900})


@pytest.mark.timeout(120)
async def test_a_restarted_gateway_knows_what_waits(gateway: GatewayProcess) -> None:
    """From the list that it saved when it stopped, and from the journals since."""
    async with entered(gateway) as world:
        scribe, (first, second) = await held(world, "keeper", {"amount": 1}, {"amount": 2})
        assert gateway.stop() == 0
        await scribe.write(ev.ApprovalDecided(call=first, verdict="rejected", sender="ann"))
        gateway.start()
        (known,) = await listed(world, [second])
        assert (known["call"], known["arguments"], known["agent"]) == (second, {"amount": 2}, "keeper")
        summary = await world.listed(scribe.run, agent="keeper", state="waiting")
        assert (summary["waiting_for"], summary["approvals"]) == ("approval", 1)


async def test_the_description_of_the_api_has_the_routes_and_their_bodies(world: World) -> None:
    document = (await world.http.get("/openapi.json")).json()
    path = document["paths"]["/v1/approvals/{call}"]
    schemas = document["components"]["schemas"]
    assert path["post"]["requestBody"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/RulingBody"
    }
    assert set(path["post"]["responses"]) >= {"200", "202", "default"}
    assert schemas["RulingBody"]["required"] == ["verdict"]
    assert {"verdict", "by", "at"} <= set(schemas["ApprovalDecision"]["properties"])
    assert {"schema", "decision", "expires_at"} <= set(schemas["Approval"]["properties"])
    assert {"deadline", "budget"} <= set(schemas["Submission"]["properties"])
    assert {"deadline_at", "budget", "own_usage", "waiting_for", "approvals"} <= set(schemas["RunDetail"]["properties"])
    listing = document["paths"]["/v1/approvals"]["get"]
    assert [one["name"] for one in listing["parameters"]] == [
        "agent",
        "run",
        "tree",
        "state",
        "limit",
        "before",
    ]


async def test_decided_calls_are_listed_with_who_decided_what_and_when(world: World) -> None:
    scribe, (first, second, third) = await held(world, "clerk", {"amount": 1}, {"amount": 2}, {"amount": 3})
    await scribe.write(ev.ApprovalDecided(call=first, verdict="approved", sender="ann"))
    await scribe.write(ev.ApprovalDecided(call=second, verdict="corrected", sender="bo", arguments={"amount": 9}))
    long = {"amount": 4, "note": "x" * 5000}
    await scribe.write(ev.ApprovalDecided(call=third, verdict="corrected", sender="cy", arguments=long))

    async def decided() -> list[dict[str, Any]] | None:
        asked = {"run": scribe.run, "state": "decided"}
        found: list[dict[str, Any]] = (await world.http.get("/v1/approvals", params=asked)).json()["approvals"]
        return found if len(found) == 3 else None

    newest, middle, oldest = await until(decided)
    assert [one["call"] for one in (newest, middle, oldest)] == [third, second, first]
    assert (oldest["decision"]["by"], oldest["decision"]["verdict"]) == ("ann", "approved")
    assert (middle["arguments"], middle["decision"]["arguments"]) == ({"amount": 2}, {"amount": 9})
    assert middle["decision"]["at"] > middle["requested_at"]
    assert (newest["cut"], newest["decision"]["arguments"]) == (True, None)
    assert (await world.http.get(f"/v1/approvals/{third}")).json()["decision"]["arguments"] == long

    query: dict[str, str | int] = {"run": scribe.run, "state": "decided", "limit": 2}
    page = (await world.http.get("/v1/approvals", params=query)).json()
    rest = (await world.http.get("/v1/approvals", params={**query, "before": page["next"]})).json()
    assert [one["call"] for one in rest["approvals"]] == [first]
    assert (await world.http.get("/v1/approvals", params={"run": scribe.run})).json()["approvals"] == []


def wanted(call: str) -> ev.ApprovalRequested:
    return ev.ApprovalRequested(
        call=call,
        name="refund",
        kind="tool",
        arguments={"amount": 20},
        reason="large",
        rule="costs.large",
        text="Refund 20 €",
    )


async def test_a_call_is_shown_with_what_a_person_decides_by(world: World) -> None:
    """The chain of tasks, the user, decisions on similar calls, and earlier results of the run."""
    root = new_run()
    run, agent = call_id(root, 1, 0), f"clerk-{root[-8:]}"
    chief, clerk = world.scribe(root, "chief"), world.scribe(run, agent)
    origin = Origin(user="ann", session="s-1", root=root)
    task = Task(
        id=task_id(root), tree=root, run=root, at=1.0, agent="chief", task="Settle.", origin=origin, session="s-1"
    )
    await chief.write(ev.RunAccepted(task=task, spec=AgentSpec(name="chief", description="Leads."), decided_by="code"))
    below = ReplyTo(agent="chief", run=root)
    own = Task(
        id=task_id(run), tree=root, run=run, at=2.0, agent=agent, task="Refund 17.", reply_to=below, origin=origin
    )
    spec = AgentSpec(name=agent, description="Refunds.", tools=["refund"])
    look, first, second = (call_id(run, step, 0) for step in (1, 2, 3))
    await clerk.write(
        ev.RunAccepted(task=own, spec=spec, decided_by="tool_calling"),
        ev.ToolsetChanged(tools=[REFUND], members=[]),
        ev.ModelCalled(purpose="act", step=1, attempt=1, cause=own.id),
        ev.ModelAnswered(purpose="act", step=1, attempt=1, content=""),
        ev.ToolCalled(call=look, tool="look", arguments={"order": 17}),
        ev.ToolAnswered(call=look, tool="look", output={"paid": 20}, executor="e1"),
        ev.StepFinished(step=1),
    )
    await clerk.write(
        ev.ModelCalled(purpose="act", step=2, attempt=1, cause="c"),
        ev.ModelAnswered(purpose="act", step=2, attempt=1, content=""),
        wanted(first),
    )
    await clerk.write(
        ev.ApprovalDecided(call=first, verdict="rejected", sender="bob"),
        ev.StepFinished(step=2),
        ev.ModelCalled(purpose="act", step=3, attempt=1, cause="c"),
        ev.ModelAnswered(purpose="act", step=3, attempt=1, content=""),
        wanted(second),
    )
    (shown,) = await listed(world, [second])
    whole = (await world.http.get(f"/v1/approvals/{second}")).json()
    for one in (shown, whole):
        assert (one["headline"], one["rule"], one["user"], one["session"]) == (
            "Refund 20 €",
            "costs.large",
            "ann",
            "s-1",
        )
        assert [(link["agent"], link["task"]) for link in one["chain"]] == [("chief", "Settle."), (agent, "Refund 17.")]
        assert one["task"] == "Refund 17."
        assert one["earlier"] == {"rejected": 1}
    assert "results" not in shown
    results = [(one["call"], one["asked"], one["result"], one["failed"]) for one in whole["results"]]
    assert results[-1] == (look, "look(order=17)", '{"paid":20}', False)
    assert [one["call"] for one in whole["results"]] == [first, look]

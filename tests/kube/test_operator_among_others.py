"""The operator next to other hands and other clients, and before an API server that fails as real ones do."""

import asyncio
import subprocess
from pathlib import Path

import httpx2
import pytest
import yaml

from cadre.deploy.k8s.render import render
from cadre.deploy.k8s.values import read_values
from cadre.deploy.team_components import components_of
from cadre.deploy.team_file import read_team
from harness.nats_server import free_port
from harness.patience import patience, until
from kube.api_server import ApiServer
from kube.conftest import Kubectl, OperatorProcess
from kube.objects import AVAILABLE, agent, becomes, condition, made, put

TEAM = Path(__file__).parents[2] / "teams" / "apollo"


async def test_values_of_a_namespace_are_laid_over_the_operators(api: ApiServer, operator: OperatorProcess) -> None:
    text = yaml.safe_dump({"namespace": "elsewhere", "workloads": {"agent/one": {"replicas": 3}, "agent/x": {}}})
    values = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "cadre-values", "namespace": "cadre"},
        "data": {"kubernetes.yaml": text},
    }
    await put(api, agent("one"), values)
    await becomes(api, "Agent", "one", type="Accepted", status="True")
    assert (api.find("Deployment", "agent-one") or {})["spec"]["replicas"] == 3
    await put(api, values | {"data": {"kubernetes.yaml": "workload: {}"}})
    told = await becomes(api, "Agent", "one", type="Accepted", status="False")
    assert "cadre-values" in told["message"]
    assert "workload" in told["message"]
    await put(api, values | {"data": {"kubernetes.yaml": ""}})
    await becomes(api, "Agent", "one", type="Accepted", status="True")
    assert (api.find("Deployment", "agent-one") or {})["spec"]["replicas"] == 1


async def test_values_that_cannot_work_are_told_and_end_no_operator(api: ApiServer, operator: OperatorProcess) -> None:
    values = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "cadre-values", "namespace": "cadre"},
        "data": {"kubernetes.yaml": "nats: {credentials: 'key-{user}'}"},
    }
    await put(api, agent("one"), values)
    told = await becomes(api, "Agent", "one", type="Accepted", status="False")
    assert "nats.credentials: 'key-{user}'" in told["message"]
    await put(api, values | {"data": {"kubernetes.yaml": "workloads: {agent/one: {drian: 3}}"}})
    await api.until(
        lambda: "field `drian`" in condition(api, "Agent", "one", "Accepted").get("message", ""), "told anew"
    )
    await put(api, values | {"data": {"kubernetes.yaml": ""}})
    await becomes(api, "Agent", "one", type="Accepted", status="True")


async def test_an_object_that_cannot_work_says_what_to_do(api: ApiServer, operator: OperatorProcess) -> None:
    second = agent("second")
    second["metadata"]["annotations"] = {"cadre.dev/revision-of": "nobody"}
    await put(
        api,
        agent("nameless", model="nonesuch"),
        agent("far", model={"name": "m", "url": "https://models.example:99999/v1"}),
        second,
        made("Team", "twins", agents=["far", "far.yaml"]),
    )
    for kind, name, what in (
        ("Agent", "nameless", "spec.model: there is no model 'nonesuch': apply a Model of this name"),
        ("Agent", "far", "'https://models.example:99999/v1' is no URL"),
        ("Agent", "second", "there is no Agent nobody here"),
        ("Team", "twins", "spec.agents: far is there twice"),
    ):
        told = await becomes(api, kind, name, type="Accepted", status="False")
        assert what in told["message"], told
        assert "/tmp" not in told["message"]


async def test_what_others_have_made_is_left_alone(api: ApiServer, operator: OperatorProcess) -> None:
    values = read_values({"keda": False, "model": {"url": "https://models.example/v1", "name": "m"}})
    rendered = render(components_of(read_team(TEAM), values), values, "agent/checker")["agent-checker"]
    await put(api, *rendered, agent("checker"))
    told = await becomes(api, "Agent", "checker", type="Accepted", status="False")
    assert "Deployment agent-checker is there" in told["message"]
    found = api.find("Deployment", "agent-checker") or {}
    assert "ownerReferences" not in found["metadata"]


async def test_an_edit_by_hand_is_put_right(api: ApiServer, operator: OperatorProcess, kubectl: Kubectl) -> None:
    await put(api, agent("one"))
    await becomes(api, "Agent", "one", type="Accepted", status="True")
    await kubectl("patch", "deployments", "agent-one", "--type=merge", "-p", '{"spec": {"replicas": 5}}')
    await api.until(lambda: (api.find("Deployment", "agent-one") or {})["spec"]["replicas"] == 1, "put right")
    with pytest.raises(subprocess.CalledProcessError) as refused:
        await kubectl("apply", "--server-side", "-f", "-", given=yaml.safe_dump(
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "agent-one"}, "spec": {"replicas": 7}}
        ))  # fmt: skip
    assert "conflict" in refused.value.output
    assert "cadre-operator" in refused.value.output


async def test_it_goes_on_through_what_an_api_server_does(api: ApiServer, operator: OperatorProcess) -> None:
    await put(api, agent("one"))
    await becomes(api, "Agent", "one", type="Accepted", status="True")
    await api.cut()
    await put(api, agent("two"))
    await becomes(api, "Agent", "two", type="Accepted", status="True")
    api.store.compact()
    await api.cut()
    await put(api, agent("three"))
    await becomes(api, "Agent", "three", type="Accepted", status="True")
    api.refusals += [("PATCH /apis/apps/v1", 500), ("PATCH /apis/cadre.dev", 409), ("GET /api/v1", 503)]
    await put(api, agent("four"))
    await becomes(api, "Agent", "four", type="Accepted", status="True")
    assert api.refusals == []


async def test_at_rest_it_asks_for_nothing(api: ApiServer, operator: OperatorProcess) -> None:
    await put(api, agent("one"))
    await becomes(api, "Agent", "one", type="Accepted", status="True")
    await api.set_status("Deployment", "agent-one", AVAILABLE)
    await becomes(api, "Agent", "one", status="True")
    before = [one["metadata"]["resourceVersion"] for kind in ("Deployment", "Secret", "Agent") for one in api.all(kind)]
    await put(api, agent("two"))
    await becomes(api, "Agent", "two", type="Accepted", status="True")
    still = {one["metadata"]["resourceVersion"] for kind in ("Deployment", "Secret", "Agent") for one in api.all(kind)}
    changed = {*before} - still
    # The server's list of users, and the common users' owners.
    assert len(changed) <= 4, changed


async def test_it_acts_where_it_is_told_to(api: ApiServer, stopped: OperatorProcess) -> None:
    await stopped.start("--namespace", "cadre")
    elsewhere = agent("far")
    elsewhere["metadata"]["namespace"] = "elsewhere"
    api.store.create(api.resource("Agent"), "elsewhere", elsewhere, "test")
    await put(api, agent("near"))
    await becomes(api, "Agent", "near", type="Accepted", status="True")
    assert [one["metadata"]["name"] for one in api.all("Deployment")] == ["agent-near"]
    assert not [line for line in api.requests if "namespaces/elsewhere" in line]
    assert await stopped.stop() == 0


async def test_a_gateway_that_does_not_answer_holds_up_nothing(api: ApiServer, stopped: OperatorProcess) -> None:
    """Definitions wait for it side by side, and other objects do not wait."""
    held: list[asyncio.StreamWriter] = []
    all_there, closed = asyncio.Event(), list[str]()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)
        if len(held) == 3:
            all_there.set()
        while await reader.read(4096):
            pass
        closed.append("one")

    async with await asyncio.start_server(hold, "127.0.0.1", 0) as silent:
        await stopped.start("--gateway", f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}")
        schedules = [made("Schedule", f"s{n}", agent="one", task="t", every="1h") for n in range(3)]
        await put(api, *schedules)
        await asyncio.wait_for(all_there.wait(), patience())
        assert not closed, "they wait side by side"
        await put(api, agent("one"))
        await becomes(api, "Agent", "one", type="Accepted", status="True")
        assert not closed, "the agent has not waited for the gateway"
        await stopped.stop()
        for writer in held:
            writer.close()


async def test_it_is_ready_once_its_statuses_are_its_own(
    api: ApiServer, stopped: OperatorProcess, tmp_path: Path
) -> None:
    """Anyone who waits for a new operator, and then for an object, does not meet a status of the old one."""
    await stopped.start()
    await put(api, agent("one"))
    await becomes(api, "Agent", "one", type="Accepted", status="True")
    await api.set_status("Deployment", "agent-one", AVAILABLE)
    await becomes(api, "Agent", "one", status="True")
    assert await stopped.stop() == 0
    (tmp_path / "next.yaml").write_text("image: cadre:next\n")
    probe = f"http://127.0.0.1:{(port := free_port())}/readyz"
    await stopped.start("-f", str(tmp_path / "next.yaml"), "--port", str(port))
    async with httpx2.AsyncClient() as client:

        async def is_ready() -> bool:
            try:
                return (await client.get(probe)).status_code == 200
            except httpx2.TransportError:
                return False

        await until(is_ready)
        assert condition(api, "Agent", "one")["reason"] == "Progressing"
        assert (await client.get(probe.replace("readyz", "healthz"))).status_code == 200

"""Tests of what the operator leaves to others: how many pods there are, and what becomes of what has lost its owner."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from cadre.deploy.k8s.render import operator_manifests
from cadre.deploy.k8s.values import read_values
from kube.api_server import ApiServer
from kube.conftest import Kubectl, OperatorProcess
from kube.object_store import Object, Place, Resource
from kube.objects import AVAILABLE, agent, available, becomes, condition, made, put

KEDA = Resource("keda.sh", "v1alpha1", "scaledobjects", "ScaledObject")
CILIUM = Resource("cilium.io", "v2", "ciliumnetworkpolicies", "CiliumNetworkPolicy")


def values(text: str) -> Object:
    about = {"name": "cadre-values", "namespace": "cadre"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {"kubernetes.yaml": text}}


def autoscaler(kind: str, name: str, version: str = "cadre.dev/v1") -> Object:
    target = {"apiVersion": version, "kind": kind, "name": name}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": f"{kind.lower()}-{name}", "namespace": "cadre"},
        "spec": {"scaleTargetRef": target, "maxReplicas": 8},
    }


def count(api: ApiServer, name: str = "agent-one") -> int:
    return int((api.find("Deployment", name) or {})["spec"]["replicas"])


async def scale(api: ApiServer, name: str, replicas: int, manager: str = "kube-controller-manager") -> None:
    """Scale a Deployment as an autoscaler does."""
    place = Place(api.resource("Deployment"), "cadre", name)
    found = api.store.get(*place)
    after = {**found, "spec": {**found["spec"], "replicas": replicas}}
    api.store.change(place, after, f"{manager}/scale", status=False, strict=False)
    await api.notify()


async def rounds(api: ApiServer, name: str = "agent-one") -> None:
    """Waits until the operator has looked at the namespace again, and at this Deployment as it is now."""
    for number in (1, 2):
        description = f"Answers, {number}. {count(api, name)}"
        await put(api, made("Agent", "witness", description=description))
        await api.until(lambda text=description: text in str(api.find("ConfigMap", "agent-witness")), "seen")


async def test_an_agent_is_scaled_as_a_deployment_is(
    api: ApiServer, stopped: OperatorProcess, kubectl: Kubectl, tmp_path: Path
) -> None:
    api.store.define(KEDA)
    (tmp_path / "keda.yaml").write_text("keda: true\n")
    await stopped.start("-f", str(tmp_path / "keda.yaml"))
    tools = made("ToolServer", "own", module="own_tools", tools=["dig"])
    await put(api, agent("one"), tools)
    await becomes(api, "Agent", "one", type="Accepted", status="True")
    await api.until(lambda: api.find("ScaledObject", "agent-one"), "KEDA counts its pods")
    await kubectl("scale", "agent/one", "-n", "cadre", "--replicas=4")
    await kubectl("scale", "toolserver/own", "-n", "cadre", "--replicas=2")
    await api.until(lambda: count(api) == 4 and count(api, "tools-own") == 2, "it is scaled")
    await api.until(lambda: api.find("ScaledObject", "agent-one") is None, "KEDA does not count them any more")
    assert "replicas" not in str((api.find("ConfigMap", "agent-one") or {})["data"]), "no pod is rolled for it"
    await api.set_status("Deployment", "agent-one", available(4))

    def status() -> dict[str, Any]:
        found: dict[str, Any] = (api.find("Agent", "one") or {})["status"]
        return found

    await api.until(lambda: status()["replicas"] == 4, "its status says so")
    assert status()["selector"] == "app.kubernetes.io/name=agent-one,app.kubernetes.io/part-of=cadre"
    await kubectl("scale", "agent/one", "-n", "cadre", "--replicas=0")
    await api.until(lambda: count(api) == 0, "it may have none")
    await kubectl("patch", "agent/one", "-n", "cadre", "--type=merge", "-p", '{"spec": {"replicas": null}}')
    await api.until(lambda: api.find("ScaledObject", "agent-one"), "KEDA counts them again")


async def test_each_of_two_revisions_says_how_many_pods_it_has(api: ApiServer, operator: OperatorProcess) -> None:
    second = agent("oracle-next", replicas=3)
    second["metadata"]["annotations"] = {"cadre.dev/revision-of": "oracle"}
    await put(api, agent("oracle"), second)
    for name in ("oracle", "oracle-next"):
        await becomes(api, "Agent", name, type="Accepted", status="True")
    assert (count(api, "agent-oracle"), count(api, "agent-oracle-next")) == (1, 3)


async def test_a_count_that_an_autoscaler_has_set_stays_until_another_one_is_asked_for(
    api: ApiServer, operator: OperatorProcess, kubectl: Kubectl
) -> None:
    await put(api, agent("one"))
    await becomes(api, "Agent", "one", type="Accepted", status="True")
    await scale(api, "agent-one", 3)
    await rounds(api)
    assert count(api) == 3
    await kubectl("scale", "deployments/agent-one", "-n", "cadre", "--replicas=5")
    await rounds(api)
    assert count(api) == 5
    assert await operator.stop() == 0
    await operator.start()
    await put(api, agent("one", instructions="Briefly."))
    await api.until(lambda: "Briefly" in str(api.find("ConfigMap", "agent-one")), "another edit is acted on")
    await rounds(api)
    assert count(api) == 5
    await put(api, values("workloads: {agent/one: {replicas: 2}}"))
    await api.until(lambda: count(api) == 2, "the values say another number")
    await scale(api, "agent-one", 6)
    await put(api, values("workloads: {agent/one: {replicas: null}}"))
    await becomes(api, "Agent", "one", type="Accepted", status="True")
    await rounds(api)
    assert count(api) == 6
    await put(api, values("workloads: {agent/one: {replicas: 4}}"))
    await api.until(lambda: count(api) == 4, "it is the operator's again")


async def test_a_count_is_kept_until_its_next_owner_sets_one(api: ApiServer, operator: OperatorProcess) -> None:
    """A field that is given up falls back to 1: five pods would become one, and grow again."""
    api.store.define(KEDA)
    await put(api, agent("one"), values("workloads: {agent/one: {replicas: 5}}"))
    await api.until(lambda: api.find("Deployment", "agent-one") and count(api) == 5, "there are five")
    await put(api, values("keda: true"))
    await api.until(lambda: api.find("ScaledObject", "agent-one"), "KEDA is to count them")
    await rounds(api)
    assert count(api) == 5
    await scale(api, "agent-one", 7)
    await rounds(api)
    assert count(api) == 7
    await put(api, values("workloads: {agent/one: {replicas: null}}"))
    await api.until(lambda: api.find("ScaledObject", "agent-one") is None, "somebody else counts them")
    await rounds(api)
    assert count(api) == 7


async def test_an_object_that_an_autoscaler_names_says_how_many_pods_it_has(
    api: ApiServer, operator: OperatorProcess, kubectl: Kubectl
) -> None:
    """An autoscaler reads no number as 0, and counts nothing."""
    api.store.define(KEDA)
    tools = made("ToolServer", "own", module="own_tools", tools=["dig"])
    await put(api, values("keda: true"), agent("one"), agent("two", replicas=2), agent("three"), tools)
    await becomes(api, "ToolServer", "own", type="Accepted", status="True")
    await scale(api, "agent-one", 4, "keda")
    await put(
        api,
        autoscaler("Agent", "one"),
        autoscaler("Agent", "two"),
        autoscaler("ToolServer", "own"),
        autoscaler("Agent", "away"),
        autoscaler("Deployment", "three", "apps/v1"),
    )

    def said(kind: str, name: str) -> Any:
        return (api.find(kind, name) or {})["spec"].get("replicas")

    await api.until(lambda: said("Agent", "one") == 4 and said("ToolServer", "own") == 1, "they say it")
    await api.until(lambda: api.find("ScaledObject", "agent-one") is None, "KEDA counts its pods no more")
    await kubectl("scale", "agent/one", "-n", "cadre", "--replicas=6")  # as an autoscaler does
    await api.until(lambda: count(api) == 6, "it is scaled")
    await rounds(api)
    assert (said("Agent", "one"), said("Agent", "two"), said("Agent", "three")) == (6, 2, None)


async def test_nothing_waits_for_an_operator_or_a_gateway_to_be_deleted(
    api: ApiServer, operator: OperatorProcess
) -> None:
    """So a namespace ends, wherever its operator is."""
    await put(
        api,
        made("Team", "t", agents=["one"]),
        agent("one"),
        values("keda: true\nworkloads: {agent/one: {scale: {min: 0}}}"),
    )
    definitions = [
        made("Schedule", "daily", agent="one", task="t", every="1d"),
        made("Trigger", "orders", agent="one", task="t", subject="orders"),
        made("Notice", "desk", url="https://desk.example", secret_env="CADRE_SECRET_X"),
        made("Budget", "small", window="day", tokens=1000),
    ]
    await put(api, *definitions)
    for one in definitions:
        await becomes(api, one["kind"], one["metadata"]["name"], status="False", reason="GatewayRefused")
    for kind in ("Agent", "Team", "Schedule", "Trigger", "Notice", "Budget", "Deployment", "Secret", "Job"):
        for one in api.all(kind):
            assert not one["metadata"].get("finalizers"), one["metadata"]


async def test_what_was_deleted_while_nobody_looked_is_forgotten_by_its_gateway(
    api: ApiServer, stopped: OperatorProcess
) -> None:
    """Once there is one again: what a gateway holds outlives it."""
    asked: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).split(b" HTTP")[0].decode())
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        writer.close()
        await api.notify()

    def forgotten(*paths: str) -> bool:
        return {f"DELETE {path}" for path in paths} <= {*asked}

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as gateway:
        address = ("--gateway", f"http://127.0.0.1:{gateway.sockets[0].getsockname()[1]}")
        await stopped.start(*address)
        await put(api, made("Team", "t", agents=[]), agent("one"), agent("two"))
        await put(api, made("Schedule", "daily", agent="one", task="t", every="1d"))
        await becomes(api, "Schedule", "daily", status="True")
        await becomes(api, "Agent", "one", type="Accepted", status="True")
        await api.until(lambda: "agents/one" in str(api.find("ConfigMap", "cadre-operator-notes")), "noted")
        assert await stopped.stop() == 0
        api.store.delete(api.resource("Schedule"), "cadre", "daily")
        api.store.delete(api.resource("Team"), "cadre", "t")
        await stopped.start(*address)
        await put(api, agent("three"))
        await becomes(api, "Agent", "three", type="Accepted", status="True")
        assert not any(line.startswith("DELETE") for line in asked), "there is no gateway"
        await put(api, made("Team", "t", agents=[]))
        await api.until(lambda: forgotten("/v1/schedules/daily"), "it is forgotten")
        for name in ("one", "two", "three"):
            api.store.delete(api.resource("Agent"), "cadre", name)
        await api.notify()
        await api.until(lambda: forgotten(*(f"/v1/agents/{n}" for n in ("one", "two", "three"))), "agents too")


async def test_what_was_deleted_without_its_pods_is_left_alone(api: ApiServer, stopped: OperatorProcess) -> None:
    """With --cascade=orphan the cluster takes the owner away, and the object goes alone."""
    asked: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).split(b" HTTP")[0].decode())
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        writer.close()
        await api.notify()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as gateway:
        await stopped.start("--gateway", f"http://127.0.0.1:{gateway.sockets[0].getsockname()[1]}")
        await put(api, made("Team", "t", agents=[]), agent("one"), agent("two"))
        for name in ("one", "two"):
            await becomes(api, "Agent", name, type="Accepted", status="True")
        uid = (api.find("Agent", "one") or {})["metadata"]["uid"]
        for kind in ("Deployment", "Secret", "ConfigMap", "ServiceAccount", "NetworkPolicy"):
            for found in api.all(kind):
                owners = found["metadata"].get("ownerReferences") or []
                if not any(one["uid"] == uid for one in owners):
                    continue
                assert all(one["blockOwnerDeletion"] for one in owners), found["metadata"]
                found["metadata"]["ownerReferences"] = [one for one in owners if one["uid"] != uid]
                place = Place(api.resource(kind), "cadre", found["metadata"]["name"])
                api.store.change(place, found, "gc", status=False, strict=False)
        api.store.delete(api.resource("Agent"), "cadre", "one")
        await api.notify()
        api.store.delete(api.resource("Agent"), "cadre", "two")
        await api.notify()
        await api.until(lambda: "DELETE /v1/agents/two" in asked, "the other one is retired")
        assert "DELETE /v1/agents/one" not in asked
        for kind, name in (
            ("Deployment", "agent-one"),
            ("Secret", "cadre-nats-agent-one"),
            ("ConfigMap", "agent-one"),
        ):
            assert api.find(kind, name) is not None, name
        assert api.find("Deployment", "agent-two") is None
        await put(api, agent("one", instructions="Briefly."))
        await becomes(api, "Agent", "one", type="Accepted", status="True")
        found = api.find("Deployment", "agent-one") or {}
        uid = (api.find("Agent", "one") or {})["metadata"]["uid"]
        assert [one["uid"] for one in found["metadata"]["ownerReferences"]] == [uid], "it is adopted"


async def test_what_the_cluster_frees_of_its_owner_in_the_midst_of_a_round_is_not_given_it_again(
    api: ApiServer, operator: OperatorProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collector removes what has an owner that is not there any more."""
    await put(api, agent("one"), agent("two"))
    for name in ("one", "two"):
        await becomes(api, "Agent", name, type="Accepted", status="True")
    await rounds(api)
    uid = (api.find("Agent", "one") or {})["metadata"]["uid"]
    answer, left = api._list, [True]

    def listed(resource: Resource, namespace: str, query: dict[str, str]) -> Response:
        """Answer; once the agent was in an answer, it is deleted without what belongs to it."""
        response = answer(resource, namespace, query)
        if resource.kind == "Agent" and left:
            left.clear()
            for kind in ("Deployment", "Secret", "ConfigMap", "ServiceAccount", "NetworkPolicy", "Job"):
                for found in api.all(kind):
                    owners = found["metadata"].get("ownerReferences") or []
                    found["metadata"]["ownerReferences"] = [one for one in owners if one["uid"] != uid]
                    place = Place(api.resource(kind), "cadre", found["metadata"]["name"])
                    api.store.change(place, found, "gc", status=False, strict=False)
            api.store.delete(api.resource("Agent"), "cadre", "one")
        return response

    monkeypatch.setattr(api, "_list", listed)
    await put(api, agent("two", instructions="Briefly."))
    await api.until(lambda: not left, "it was deleted")
    monkeypatch.undo()
    await api.notify()
    await rounds(api, "agent-two")
    for kind in ("Deployment", "Secret", "ConfigMap", "ServiceAccount"):
        names = [one["metadata"]["name"] for one in api.all(kind) if uid in str(one["metadata"])]
        assert not names, f"{kind} {names} would be collected"
    assert api.find("Secret", "cadre-nats-agent-one") is not None


async def test_a_definition_says_which_agents_it_lacks(api: ApiServer, operator: OperatorProcess) -> None:
    await put(
        api,
        agent("one"),
        made("Schedule", "daily", agent="nobody", task="t", every="1d"),
        made("Trigger", "orders", agent="one", task="t", subject="orders"),
        made("Notice", "desk", url="https://desk.example", secret_env="CADRE_SECRET_X", agents=["one", "gone"]),
        made("Budget", "small", window="day", tokens=1000, agent="absent"),
    )
    for kind, name, lack in (
        ("Schedule", "daily", "nobody"),
        ("Notice", "desk", "gone"),
        ("Budget", "small", "absent"),
    ):
        told = await becomes(api, kind, name, type="Complete", status="False", reason="Missing")
        assert f"agent {lack} " in told["message"]
    await becomes(api, "Trigger", "orders", type="Complete", status="True")
    await put(api, agent("nobody"))
    await becomes(api, "Schedule", "daily", type="Complete", status="True")


async def test_a_mount_that_is_not_there_is_named(api: ApiServer, operator: OperatorProcess) -> None:
    """The pod itself is only waiting, and says nothing."""
    await put(api, agent("one"))
    await becomes(api, "Agent", "one", type="Accepted", status="True")
    await api.set_status("Deployment", "agent-one", {**AVAILABLE, "availableReplicas": 0})
    labels = {"app.kubernetes.io/name": "agent-one", "app.kubernetes.io/part-of": "cadre"}
    volumes: list[Object] = [
        {
            "name": "a",
            "secret": {"secretName": "certificates", "items": [{"key": "ca.crt", "path": "ca.crt"}]},
        },
        {"name": "b", "configMap": {"name": "maybe", "optional": True}},
        {"name": "c", "secret": {"secretName": "cadre-nats-agent-one"}},
    ]
    volumes.append({"name": "d", "secret": {"secretName": "of no container"}})
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("a", "b", "c")]
    pod_spec = {"volumes": volumes, "containers": [{"name": "main", "volumeMounts": mounts}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": pod_spec}
    await put(api, {**pod, "metadata": {"name": "one-x", "namespace": "cadre", "labels": labels}})
    state = {"waiting": {"reason": "ContainerCreating"}}
    await api.set_status("Pod", "one-x", {"containerStatuses": [{"ready": False, "state": state}]})
    told = await becomes(api, "Agent", "one", status="False", reason="FailedMount")
    assert "Secret certificates" in told["message"]
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "certificates", "namespace": "cadre"},
    }
    await put(api, {**secret, "data": {"tls.crt": "eA=="}}, agent("two"))
    await api.until(lambda: "has no ca.crt" in condition(api, "Agent", "one").get("message", ""), "its key")
    await put(api, {**secret, "data": {"ca.crt": "eA=="}}, agent("three"))
    await becomes(api, "Agent", "one", status="False", reason="Progressing")


async def test_it_uses_each_right_that_it_has_and_no_other(
    api: ApiServer, stopped: OperatorProcess, tmp_path: Path
) -> None:
    api.store.define(KEDA, CILIUM)
    (tmp_path / "all.yaml").write_text("keda: true\ncilium: true\nmemory: {enabled: true, engine: embedded}\n")
    await stopped.start("-f", str(tmp_path / "all.yaml"))
    nats = {"name": "nats-0", "namespace": "cadre", "labels": {"app.kubernetes.io/name": "nats"}}
    await put(api, {"apiVersion": "v1", "kind": "Pod", "spec": {}, "metadata": nats})
    tools = made("ToolServer", "own", module="own_tools", tools=["dig"])
    definitions = [
        made("Schedule", "daily", agent="one", task="t", every="1d"),
        made("Trigger", "orders", agent="one", task="t", subject="orders"),
        made("Notice", "desk", url="https://desk.example", secret_env="CADRE_SECRET_X"),
        made("Budget", "small", window="day", tokens=1000),
    ]
    model = made("Model", "big", url="https://models.example/v1")
    coder = agent("one", kind="code")
    await put(api, made("Team", "t", agents=["one"]), coder, model, tools, *definitions)
    await put(api, agent("two"), autoscaler("Agent", "two"), autoscaler("ToolServer", "own"))
    for one in definitions:
        await becomes(api, one["kind"], one["metadata"]["name"], status="False", reason="GatewayRefused")
    await becomes(api, "Agent", "one", type="Accepted", status="True")
    # Each kind of what it makes is not needed once: of a service, and of what scales it and lets it out.
    await put(api, values("cilium: false\nkeda: false\ninstance: other"))
    await api.until(lambda: not api.all("ScaledObject") and not api.all("CiliumNetworkPolicy"), "they go")
    await put(api, made("Agent", "one", description="Answers."))
    await api.until(lambda: api.find("Secret", "cadre-nats-sandbox-default") is None, "it needs no sandbox")
    api.store.delete(api.resource("Schedule"), "cadre", "daily")
    await api.notify()
    await api.until(lambda: ("", "services", "get") in api.used, "it looks for the gateway that is to forget it")
    granted = {
        (group, resource, verb)
        for one in operator_manifests(read_values(), "", ())
        if one["kind"] == "ClusterRole"
        for rule in one["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    asked_by_clusters = {(g, r, v) for g, r, v in granted if r.endswith("/finalizers")}
    assert api.used - granted == set()
    assert granted - api.used - asked_by_clusters == set()

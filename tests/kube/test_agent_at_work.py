"""An agent that was applied answers a task: what the operator makes is started here as processes, as nodes would."""

import asyncio
from base64 import b64encode
from pathlib import Path
from typing import Any

import httpx2

from harness.command import Commands
from harness.patience import eventually, patience
from harness.pods import ADMIN_KEY, Place, secret
from harness.stack import Stack
from kube.api_server import ApiServer
from kube.conftest import OperatorProcess
from kube.objects import agent, becomes, made, put

AS_ADMIN = {"Authorization": f"Bearer {ADMIN_KEY}"}
SCRIPT = """\
rules:
  - name: answers
    match: {system: "Be brief"}
    reply: {tool_calls: [{name: final_answer, arguments: {answer: "Forty-two."}}]}
"""
GATEWAY_KEY = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "cadre-gateway", "namespace": "cadre"},
    "data": {"CADRE_ADMIN_KEY": b64encode(ADMIN_KEY.encode()).decode()},
}


async def test_an_applied_agent_answers_and_an_applied_schedule_is_kept(
    api: ApiServer, stopped: OperatorProcess, tmp_path: Path
) -> None:
    await stopped.start()
    objects = [GATEWAY_KEY, model("http://127.0.0.1:9/v1"), made("Team", "small", agents=["oracle"])]
    await put(api, *objects, agent("oracle", model="scripted", instructions="Be brief."))
    await becomes(api, "Agent", "oracle", type="Accepted", status="True")
    await becomes(api, "Team", "small", type="Accepted", status="True")
    folder = tmp_path / "pods"
    folder.mkdir()
    (folder / "auth.conf").write_text(secret(api.all("Secret"), "cadre-nats-server")["auth.conf"])
    (folder / "script.yaml").write_text(SCRIPT)
    with Stack(folder, nats='include "auth.conf"\n') as stack:
        service = await asyncio.to_thread(stack.model, folder / "script.yaml")
        await put(api, model(f"{service.url}/v1"))
        await api.until(lambda: service.url in str(api.find("ConfigMap", "agent-oracle")), "it has the model")
        await asyncio.to_thread(start, api, stack)
        gateway = stack.services["gateway"].url
        await asyncio.to_thread(ask, gateway)
        assert not [line for line in (folder / "nats.log").read_text().splitlines() if "Violation" in line]

        assert await stopped.stop() == 0
        await stopped.start("--gateway", gateway)
        await put(api, made("Schedule", "daily", agent="oracle", task="Well?", every="1d"))
        await becomes(api, "Schedule", "daily", status="True", reason="Scheduled")
        assert '"every":"1d"' in schedule(gateway).text
        await put(api, made("Schedule", "daily", agent="oracle", task="Well?", every="2d"))
        await api.until(lambda: '"every":"2d"' in schedule(gateway).text, "the gateway has the change")
        found = api.store.delete(api.resource("Schedule"), "cadre", "daily")
        assert found["metadata"]["deletionTimestamp"], "it waits for the gateway to forget it"
        await api.notify()
        await api.until(lambda: api.find("Schedule", "daily") is None, "it is gone")
        assert schedule(gateway).status_code == 404


async def test_a_schedule_goes_although_its_gateway_is_gone(
    api: ApiServer, operator: OperatorProcess
) -> None:
    await put(api, made("Schedule", "daily", agent="oracle", task="Well?", every="1d"))
    told = await becomes(api, "Schedule", "daily", status="False", reason="GatewayRefused")
    assert "does not answer" in told["message"]
    api.store.delete(api.resource("Schedule"), "cadre", "daily")
    await api.notify()
    await api.until(lambda: api.find("Schedule", "daily") is None, "it is gone")


def model(url: str) -> dict[str, Any]:
    return made("Model", "scripted", url=url)


def start(api: ApiServer, stack: Stack) -> None:
    """The Jobs first, then the services, each with the files and variables of its pod."""
    manifests = [one for kind in ("Secret", "ConfigMap") for one in api.all(kind)]
    place = Place(stack.folder / "files", manifests, stack)
    for job in api.all("Job"):
        name, pod = job["metadata"]["name"], job["spec"]["template"]["spec"]
        arguments = place.arguments(name, pod)
        done = Commands(stack.folder, {**stack.environment, **place.environment(name, pod)})(*arguments)
        assert done.returncode == 0, done.stderr
    for deployment in api.all("Deployment"):
        name, pod = deployment["metadata"]["name"], deployment["spec"]["template"]["spec"]
        arguments = ["cadre.cli.main", *place.arguments(name, pod)]
        stack.add(name, *arguments, start=False, **place.environment(name, pod))
    stack.start_all()


def ask(gateway: str) -> None:
    with httpx2.Client(base_url=gateway, headers=AS_ADMIN, timeout=patience()) as client:
        eventually(lambda: "oracle" in client.get("/v1/agents").text, what="the agent is live")
        run = client.post("/v1/runs", json={"agent": "oracle", "task": "Well?"}).json()["id"]
        eventually(
            lambda: client.get(f"/v1/runs/{run}").json().get("output") == "Forty-two.",
            what="the run has its answer",
            state=lambda: client.get(f"/v1/runs/{run}").text,
        )


def schedule(gateway: str) -> httpx2.Response:
    return httpx2.get(f"{gateway}/v1/schedules/daily", headers=AS_ADMIN, timeout=30)

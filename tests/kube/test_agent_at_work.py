"""An agent that was applied answers a task: what the operator makes is started here as processes, as nodes would."""

import asyncio
import json
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
  - name: answers at length
    match: {system: "Be long"}
    reply: {tool_calls: [{name: final_answer, arguments: {answer: "The answer is forty-two."}}]}
"""
GATEWAY_KEY = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "cadre-gateway", "namespace": "cadre"},
    "data": {"CADRE_ADMIN_KEY": b64encode(ADMIN_KEY.encode()).decode()},
}


DEFINED: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("Schedule", {"agent": "oracle", "task": "Well?", "every": "1d"}, {"every": "2d"}, "Scheduled"),
    ("Trigger", {"agent": "oracle", "task": "Well?", "subject": "orders"}, {"subject": "sales"}, "Made"),
    (
        "Notice",
        {"url": "https://desk.example", "secret_env": "CADRE_SECRET_X"},
        {"url": "https://other.example"},
        "Made",
    ),
    ("Budget", {"window": "day", "tokens": 100_000}, {"tokens": 200_000}, "Made"),
]
"""Of each kind of definition: the keys of one, what is changed in it, and why it is ready."""


async def test_an_applied_agent_answers_and_applied_definitions_are_kept(
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
        for kind, spec, changed, reason in DEFINED:
            await kept_and_forgotten(api, gateway, kind, spec, changed, reason)

        await asyncio.to_thread(stack.services["agent-oracle"].kill)
        wanted = {"agent": "oracle", "task": "Well?"}
        with httpx2.Client(base_url=gateway, headers=AS_ADMIN, timeout=patience()) as client:

            def begin() -> httpx2.Response:
                return client.post("/v1/runs", json=wanted)

            assert begin().status_code == 202, "what is away is given runs"
            api.store.delete(api.resource("Agent"), "cadre", "oracle")
            await api.notify()
            await asyncio.to_thread(
                eventually,
                lambda: (answer := begin()).status_code == 404 and answer.json()["code"] == "unknown-agent",
                what="it goes with its object",
            )


async def test_an_agent_scaled_to_zero_takes_runs_until_its_object_goes(
    api: ApiServer, stopped: OperatorProcess, tmp_path: Path
) -> None:
    """No one starts its Deployment before its queue holds something: that is KEDA's part, played here."""
    values = {"keda": True, "workloads": {"agent/oracle": {"scale": {"min": 0}}}}
    map_of_values = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "cadre-values", "namespace": "cadre"},
        "data": {"kubernetes.yaml": json.dumps(values)},
    }
    folder = tmp_path / "pods"
    folder.mkdir()
    (folder / "script.yaml").write_text(SCRIPT)
    await stopped.start()
    await put(api, map_of_values, GATEWAY_KEY, model("http://127.0.0.1:9/v1"))
    await put(api, made("Team", "small", agents=["oracle"]))
    await put(api, agent("oracle", model="scripted", instructions="Be brief."))
    await becomes(api, "Agent", "oracle", type="Accepted", status="True")
    await becomes(api, "Team", "small", type="Accepted", status="True")
    (folder / "auth.conf").write_text(secret(api.all("Secret"), "cadre-nats-server")["auth.conf"])
    with Stack(folder, nats='include "auth.conf"\n') as stack:
        service = await asyncio.to_thread(stack.model, folder / "script.yaml")
        await put(api, model(f"{service.url}/v1"))
        await api.until(lambda: service.url in str(api.find("ConfigMap", "agent-oracle")), "it has the model")
        await asyncio.to_thread(start, api, stack, asleep="agent-oracle")
        gateway = stack.services["gateway"].url
        assert await stopped.stop() == 0
        await stopped.start("--gateway", gateway)
        with httpx2.Client(base_url=gateway, headers=AS_ADMIN, timeout=patience()) as client:
            begun = client.post("/v1/runs", json={"agent": "oracle", "task": "Well?"})
            assert begun.status_code == 202, begun.text
            queues = client.get("/v1/load").json()["queues"]
            assert {"kind": "agent", "name": "oracle", "messages": 1} in queues
            await asyncio.to_thread(start, api, stack)
            await asyncio.to_thread(ask, gateway)
            assert stack.services["agent-oracle"].terminate() == 0

            # Deleted while no operator looks, it goes at once, and its card when there is one again.
            assert await stopped.stop() == 0
            api.store.delete(api.resource("Agent"), "cadre", "oracle")
            assert api.find("Agent", "oracle") is None
            await stopped.start("--gateway", gateway)
            await asyncio.to_thread(
                eventually,
                lambda: (
                    (answer := client.post("/v1/runs", json={"agent": "oracle", "task": "Well?"})).status_code == 404
                    and answer.json()["code"] == "unknown-agent"
                ),
                what="its card is gone",
            )
        assert not [line for line in (folder / "nats.log").read_text().splitlines() if "Violation" in line]


async def test_two_revisions_of_an_agent_share_its_runs_and_the_older_one_goes(
    api: ApiServer, stopped: OperatorProcess, tmp_path: Path
) -> None:
    await stopped.start()
    await put(api, GATEWAY_KEY, model("http://127.0.0.1:9/v1"), made("Team", "small", agents=["oracle"]))
    await put(api, agent("oracle", model="scripted", instructions="Be brief."))
    next_one = agent("oracle-next", model="scripted", instructions="Be long.")
    next_one["metadata"]["annotations"] = {"cadre.dev/revision-of": "oracle"}
    folder = tmp_path / "pods"
    folder.mkdir()
    (folder / "script.yaml").write_text(SCRIPT)
    await becomes(api, "Agent", "oracle", type="Accepted", status="True")
    await becomes(api, "Team", "small", type="Accepted", status="True")
    (folder / "auth.conf").write_text(secret(api.all("Secret"), "cadre-nats-server")["auth.conf"])
    with Stack(folder, nats='include "auth.conf"\n') as stack:
        service = await asyncio.to_thread(stack.model, folder / "script.yaml")
        await put(api, model(f"{service.url}/v1"))
        await api.until(lambda: service.url in str(api.find("ConfigMap", "agent-oracle")), "it has the model")
        users = (api.find("Secret", "cadre-nats-server") or {})["data"]
        await asyncio.to_thread(start, api, stack)
        gateway = Revisions(stack.services["gateway"].url)
        first = await asyncio.to_thread(gateway.live, 1)
        await asyncio.to_thread(gateway.share, to=first[0], weight=100)

        await put(api, next_one)
        await becomes(api, "Agent", "oracle-next", type="Accepted", status="True")
        assert (api.find("Secret", "cadre-nats-server") or {})["data"] == users, "it is the same NATS user"
        await asyncio.to_thread(start, api, stack)
        both = await asyncio.to_thread(gateway.live, 2)
        assert await asyncio.to_thread(gateway.answer) == "Forty-two."
        [second] = {*both} - {*first}
        await asyncio.to_thread(gateway.share, to=second, weight=100)
        assert await asyncio.to_thread(gateway.answer) == "The answer is forty-two."
        await asyncio.to_thread(gateway.drained, first[0])

        # The older one has no runs any more: its object becomes what the second is, which then may go.
        await put(api, agent("oracle", model="scripted", instructions="Be long."))
        await api.until(lambda: "Be long." in str(api.find("ConfigMap", "agent-oracle")), "the first is changed")
        stack.services["agent-oracle"].terminate()
        await asyncio.to_thread(start, api, stack, "agent-oracle")
        assert await asyncio.to_thread(gateway.live, 1) == [second], "it is the same revision"
        api.store.delete(api.resource("Agent"), "cadre", "oracle-next")
        await api.notify()
        await api.until(lambda: api.find("Deployment", "agent-oracle-next") is None, "its Deployment is gone")
        assert api.find("Secret", "cadre-nats-agent-oracle") is not None, "the key is the first one's as well"
        stack.services["agent-oracle-next"].terminate()
        await asyncio.to_thread(gateway.share, end=True)
        assert await asyncio.to_thread(gateway.answer) == "The answer is forty-two."
        assert not [line for line in (folder / "nats.log").read_text().splitlines() if "Violation" in line]


class Revisions:
    """The rollout of the oracle, at the gateway."""

    def __init__(self, url: str) -> None:
        self._url = url

    def _ask(self, method: str, path: str, **options: Any) -> Any:
        answer = httpx2.request(
            method, f"{self._url}{path}", headers=AS_ADMIN, timeout=patience(), verify=False, **options
        )
        assert answer.status_code < 300, answer.text
        return answer.json()

    def live(self, count: int) -> list[str]:
        """The live revisions, once there are so many."""
        found: list[str] = []

        def look() -> bool:
            agents = self._ask("GET", "/v1/agents")["agents"]
            found[:] = dict.fromkeys(one["revision"] for a in agents for one in a["replicas"])
            return len(found) == count

        eventually(look, what=f"{count} revisions are live", state=lambda: found)
        return found

    def share(self, **change: Any) -> None:
        self._ask("POST", "/v1/agents/oracle/rollout", json=change)

    def answer(self) -> Any:
        run = self._ask("POST", "/v1/runs", json={"agent": "oracle", "task": "Well?"})["id"]
        detail: dict[str, Any] = {}

        def ended() -> bool:
            detail.update(self._ask("GET", f"/v1/runs/{run}"))
            return bool(detail["state"] == "success")

        eventually(ended, what="the run has its answer", state=lambda: detail)
        return detail["output"]

    def drained(self, revision: str) -> None:
        def gone() -> bool:
            shown = self._ask("GET", "/v1/agents/oracle/rollout")["revisions"]
            return revision not in [one["revision"] for one in shown if one["weight"] is not None]

        eventually(gone, what="the older revision has no part in the rollout any more")


async def test_definitions_go_although_their_gateway_is_gone(api: ApiServer, operator: OperatorProcess) -> None:
    await put(api, *(made(kind, "daily", **spec) for kind, spec, _, _ in DEFINED))
    for kind, *_ in DEFINED:
        refusal = await becomes(api, kind, "daily", status="False", reason="GatewayRefused")
        assert "does not answer" in refusal["message"]
        api.store.delete(api.resource(kind), "cadre", "daily")
        assert api.find(kind, "daily") is None


async def kept_and_forgotten(
    api: ApiServer, gateway: str, kind: str, spec: dict[str, Any], changed: dict[str, Any], reason: str
) -> None:
    """The gateway has the definition that an object is, its change, and nothing once the object is deleted."""
    [(key, value)] = changed.items()

    def shown() -> httpx2.Response:
        return httpx2.get(f"{gateway}/v1/{kind.lower()}s/daily", headers=AS_ADMIN, timeout=30)

    def is_changed() -> bool:
        found = shown().json()
        return bool(found.get("spec", found)[key] == value)

    await put(api, made(kind, "daily", **spec))
    await becomes(api, kind, "daily", status="True", reason=reason)
    assert shown().status_code == 200
    assert not is_changed()
    await put(api, made(kind, "daily", **spec | changed))
    await api.until(is_changed, f"the gateway has the change of the {kind}")
    api.store.delete(api.resource(kind), "cadre", "daily")
    assert api.find(kind, "daily") is None, "it waits for no gateway"
    await api.notify()
    await asyncio.to_thread(eventually, lambda: shown().status_code == 404, what=f"the {kind} is forgotten")


def model(url: str) -> dict[str, Any]:
    return made("Model", "scripted", url=url)


def start(api: ApiServer, stack: Stack, again: str = "", asleep: str = "") -> None:
    """The Jobs first, then the services, each with the files and variables of its pod: those that were not started
    before but for the one that is `asleep`, and the one that is to start `again`."""
    manifests = [one for kind in ("Secret", "ConfigMap") for one in api.all(kind)]
    place = Place(stack.folder / "files", manifests, stack)
    for job in api.all("Job"):
        name, pod = job["metadata"]["name"], job["spec"]["template"]["spec"]
        arguments = place.arguments(name, pod)
        done = Commands(stack.folder, {**stack.environment, **place.environment(name, pod)})(*arguments)
        assert done.returncode == 0, done.stderr
    for deployment in api.all("Deployment"):
        if deployment["metadata"]["name"] in ({*stack.services} | {asleep}) - {again}:
            continue
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

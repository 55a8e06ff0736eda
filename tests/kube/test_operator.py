"""Objects become services: applied, reported on, changed, taken away, by the operator as a process."""

from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import yaml

from cadre.adapters.nats.connection.keys import key_in, public_key
from cadre.deploy.k8s.manifest import MANAGED_BY
from cadre.deploy.k8s.render import render
from cadre.deploy.k8s.values import read_values
from cadre.deploy.team_components import components_of
from cadre.deploy.team_file import read_team
from harness.texts import holds
from kube.api_server import ApiServer
from kube.conftest import Kubectl, OperatorProcess
from kube.object_store import Resource
from kube.objects import AVAILABLE, agent, available, becomes, made, put

TEAM = Path(__file__).parents[2] / "teams" / "apollo"


async def test_kubectl_apply_of_an_agent_makes_what_render_renders(
    api: ApiServer, operator: OperatorProcess, kubectl: Kubectl, tmp_path: Path
) -> None:
    await kubectl("apply", "--server-side", "-f", str(TEAM / "checker.yaml"))
    await becomes(api, "Agent", "checker", type="Accepted", status="True")
    values = read_values(yaml.safe_load((tmp_path / "values.yaml").read_text()))
    rendered = render(components_of(read_team(TEAM), values), values, "agent/checker")["agent-checker"]
    agent_uid = (api.find("Agent", "checker") or {})["metadata"]["uid"]
    for one in rendered:
        found = api.find(one["kind"], one["metadata"]["name"])
        assert found is not None, one["metadata"]
        assert [owner["uid"] for owner in found["metadata"]["ownerReferences"]] == [agent_uid]
        assert found["metadata"]["labels"][MANAGED_BY] == "cadre-operator"
        if one["kind"] != "ConfigMap":
            assert without_digest(found.get("spec", {})) == without_digest(one.get("spec", {}))
    files = (api.find("ConfigMap", "agent-checker") or {})["data"]
    [written] = [yaml.safe_load(text) for text in files.values()]
    assert written["spec"] == yaml.safe_load((TEAM / "checker.yaml").read_text())["spec"]
    await api.set_status("Deployment", "agent-checker", AVAILABLE)
    await becomes(api, "Agent", "checker", status="True", reason="Available")
    shown = await kubectl("get", "agent", "checker", "-o", "yaml")
    assert yaml.safe_load(shown)["status"]["readyReplicas"] == 1
    await api.until(lambda: {"Rendered", "Progressing", "Available"} <= reasons(api, agent_uid), "events tell of it")


def reasons(api: ApiServer, uid: str) -> set[str]:
    return {one["reason"] for one in api.all("Event") if one["involvedObject"]["uid"] == uid}


def warnings(api: ApiServer) -> list[str]:
    return [one["reason"] for one in api.all("Event") if one["type"] == "Warning"]


def without_digest(spec: dict[str, Any]) -> dict[str, Any]:
    """The file is written from the object: it says the same in other bytes. Volumes say where it lies."""
    template = spec.get("template", {})
    template.get("metadata", {}).pop("annotations", None)
    for volume in template.get("spec", {}).get("volumes", []):
        volume.get("configMap", {}).pop("items", None)
    for container in template.get("spec", {}).get("containers", []):
        if container["args"][0] == "agent":
            container["args"] = ["agent"]
    return spec


async def test_an_agent_that_is_deleted_takes_everything_with_it(
    api: ApiServer, operator: OperatorProcess, kubectl: Kubectl
) -> None:
    await put(api, agent("one"), agent("two"))
    await becomes(api, "Agent", "one", type="Accepted", status="True")
    await becomes(api, "Agent", "two", type="Accepted", status="True")
    assert {"agent-one", "agent-two"} <= users(api)
    await kubectl("delete", "agent", "two", "-n", "cadre")
    await api.until(lambda: api.find("Deployment", "agent-two") is None, "its Deployment is gone")
    await api.until(lambda: "agent-two" not in users(api), "its NATS user is gone")
    kinds = ("ConfigMap", "Secret", "NetworkPolicy")
    await api.until(
        lambda: not any("two" in one["metadata"]["name"] for kind in kinds for one in api.all(kind)),
        "all else of it is gone",
    )
    assert api.find("Deployment", "agent-one") is not None
    assert "agent-one" in users(api)


def users(api: ApiServer) -> set[str]:
    """The NATS users in the server's file."""
    secret = api.find("Secret", "cadre-nats-server")
    text = b64decode(secret["data"]["auth.conf"]).decode() if secret else ""
    return {line.strip(" #") for line in text.splitlines() if line.startswith("    # ")}


async def test_a_key_that_is_there_is_kept(api: ApiServer, operator: OperatorProcess) -> None:
    await put(api, agent("one"))
    await becomes(api, "Agent", "one", type="Accepted", status="True")
    key = (api.find("Secret", "cadre-nats-agent-one") or {})["data"]
    assert await operator.stop() == 0
    await put(api, agent("one", instructions="Briefly."), agent("two"))
    await operator.start()
    await becomes(api, "Agent", "two", type="Accepted", status="True")
    await becomes(api, "Agent", "one", type="Accepted", status="True")
    assert (api.find("Secret", "cadre-nats-agent-one") or {})["data"] == key


async def test_a_key_that_is_deleted_is_made_anew_and_the_server_is_told(
    api: ApiServer, operator: OperatorProcess, kubectl: Kubectl
) -> None:
    await put(api, agent("one"), agent("two"))
    for name in ("one", "two"):
        await becomes(api, "Agent", name, type="Accepted", status="True")

    def key(name: str) -> str:
        found = api.find("Secret", f"cadre-nats-agent-{name}")
        return public_key(key_in(b64decode(found["data"]["nats.nk"]).decode(), name).seed) if found else ""

    def known() -> str:
        return b64decode((api.find("Secret", "cadre-nats-server") or {})["data"]["auth.conf"]).decode()

    old, other = key("one"), key("two")
    assert old in known()
    await kubectl("delete", "secret", "cadre-nats-agent-one", "-n", "cadre")
    await api.until(lambda: key("one") not in ("", old), "there is a new key")
    await api.until(lambda: key("one") in known() and old not in known(), "the server's list has it")
    assert key("two") == other
    assert other in known()


async def test_an_edit_that_cannot_work_is_told_and_what_runs_goes_on(
    api: ApiServer, operator: OperatorProcess, kubectl: Kubectl
) -> None:
    await put(api, agent("one", tools=["search"]))
    await becomes(api, "Agent", "one", type="Accepted", status="True")
    before = api.find("Deployment", "agent-one")
    await put(api, agent("one", tools=["no name"]))
    told = await becomes(api, "Agent", "one", type="Accepted", status="False", reason="Invalid")
    assert "tool name 'no name'" in told["message"]
    assert "/tmp" not in told["message"]
    assert api.find("Deployment", "agent-one") == before
    # The first warning is of the tool that nothing serves here.
    await api.until(lambda: warnings(api) == ["Missing", "Invalid"], "it is an event")
    await put(api, agent("one", tools=["search", "find"]))
    await becomes(api, "Agent", "one", type="Accepted", status="True")
    assert "find" in str((api.find("ConfigMap", "agent-one") or {})["data"])


REFUSED = [
    (agent("a1", prompts="/etc/passwd"), "spec.prompts"),
    (agent("a2", model={"use": "../../x"}), "model name"),
    (agent("a3", model="gone"), "there is no model 'gone'"),
    (agent("team"), "choose another one"),
    (made("ToolServer", "t1", module="os.system;x"), "is no module"),
    (made("ToolServer", "t2", module="antigravity"), "name the tools"),
    (made("ToolServer", "t3", mcpServers={"x": {"command": "touch"}}), "name the tools"),
    (made("ToolServer", "t4"), "either a module or mcpServers"),
    (made("Model", "m1", url="ftp://x"), "must begin with http"),
    (made("Schedule", "s1", agent="a", task="t", every="soon"), "no length of time"),
    (made("Trigger", "s2", agent="a", task="t"), "subject, webhook: "),
    (made("Notice", "s3", url="https://me@x.example", secret_env="CADRE_SECRET_X"), "url: "),
    (made("Budget", "s4", window="day"), "tokens, cost: "),
]


async def test_what_cannot_be_says_why(api: ApiServer, operator: OperatorProcess) -> None:
    """The operator reads no file for them, starts no command, and imports nothing."""
    await put(api, *(document for document, _ in REFUSED))
    for document, reads in REFUSED:
        told = await becomes(api, document["kind"], document["metadata"]["name"], status="False", reason="Invalid")
        assert reads in told["message"]
    assert not api.all("Deployment")
    await put(api, made("Team", "x1", agents=["gone"]), made("Team", "x2", agents=[], tools=["tools/x.py"]))
    assert holds((await becomes(api, "Team", "x1", reason="Invalid"))["message"], "spec.agents", "gone")
    assert "kind ToolServer" in (await becomes(api, "Team", "x2", reason="Invalid"))["message"]


async def test_a_model_that_changes_rolls_the_agents_that_use_it(api: ApiServer, operator: OperatorProcess) -> None:
    await put(api, made("Model", "big", url="https://models.example/v1"), agent("one", model="big"), agent("two"))
    for name in ("one", "two"):
        await becomes(api, "Agent", name, type="Accepted", status="True")

    def digest(name: str) -> str:
        found = api.find("Deployment", f"agent-{name}") or {}
        return str(found["spec"]["template"]["metadata"]["annotations"]["cadre.dev/spec-hash"])

    before = digest("one"), digest("two")
    await put(api, made("Model", "big", url="https://others.example:8443/v1"))
    await api.until(lambda: digest("one") != before[0], "the agent with the model is rolled")
    assert digest("two") == before[1]
    policy = api.find("NetworkPolicy", "agent-one") or {}
    await api.until(lambda: "8443" in str(api.find("NetworkPolicy", "agent-one")), f"its port is open: {policy}")


async def test_a_team_brings_what_its_agents_share(api: ApiServer, operator: OperatorProcess) -> None:
    await put(
        api,
        agent("coder", kind="code"),
        agent("other"),
        made("ToolServer", "files", module="cadre_standard_tools.files"),
        made(
            "ToolServer",
            "remote",
            mcpServers={"x": {"url": "https://x.example"}},
            tools=["dig"],
            image="own:1",
        ),
        made("Team", "small", agents=["coder.yaml", "other"], model={"name": "m"}, variables={"A": "b"}),
    )
    await becomes(api, "Team", "small", type="Accepted", status="True")
    for name in ("coder", "other"):
        await becomes(api, "Agent", name, type="Accepted", status="True")
    for name in ("files", "remote"):
        await becomes(api, "ToolServer", name, type="Accepted", status="True")
    deployments = {one["metadata"]["name"]: one for one in api.all("Deployment")}
    wanted = {"gateway", "sandbox-default", "agent-coder", "agent-other", "tools-files", "tools-remote"}
    assert {*deployments} == wanted
    [container] = deployments["tools-remote"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "own:1"
    assert container["args"] == ["tools", "/etc/cadre/team/remote.yaml"]
    assert "name: m" in str((api.find("ConfigMap", "agent-other") or {})["data"])
    waiting = (await becomes(api, "Team", "small", status="False"))["message"]
    assert "gateway" in waiting
    for name in wanted:
        await api.set_status("Deployment", name, available(deployments[name]["spec"]["replicas"]))
    await becomes(api, "Team", "small", status="True")


async def test_why_a_pod_does_not_come_up_is_said_and_what_an_agent_lacks(
    api: ApiServer, operator: OperatorProcess
) -> None:
    await put(api, agent("one", team=["nobody"], tools=["fly"]), agent("two", team=["one"]))
    await becomes(api, "Agent", "two", type="Complete", status="True")
    lacks = await becomes(api, "Agent", "one", type="Complete", status="False", reason="Missing")
    assert "agent nobody" in lacks["message"]
    assert "tool fly" in lacks["message"]
    await api.set_status("Deployment", "agent-one", AVAILABLE)
    await becomes(api, "Agent", "one", status="True", reason="Available")
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {}}
    labels = {"app.kubernetes.io/name": "agent-one", "app.kubernetes.io/part-of": "cadre"}
    pod["metadata"] = {"name": "agent-one-x", "namespace": "cadre", "labels": labels}
    await put(api, pod)
    state = {"waiting": {"reason": "ErrImagePull", "message": 'image "none:9" not found'}}
    await api.set_status("Pod", "agent-one-x", {"containerStatuses": [{"ready": False, "state": state}]})
    told = await becomes(api, "Agent", "one", status="False", reason="ErrImagePull")
    assert "none:9" in told["message"]
    await becomes(api, "Agent", "one", type="Stalled", status="True")


async def test_wrong_values_leave_ready_what_goes_on_and_name_the_key(
    api: ApiServer, operator: OperatorProcess
) -> None:
    await put(api, agent("one"))
    await becomes(api, "Agent", "one", type="Accepted", status="True")
    await api.set_status("Deployment", "agent-one", AVAILABLE)
    await becomes(api, "Agent", "one", status="True", reason="Available")
    wrong = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"kubernetes.yaml": "workloads: {gateway: 3}"}}
    await put(api, {**wrong, "metadata": {"name": "cadre-values", "namespace": "cadre"}})
    told = await becomes(api, "Agent", "one", type="Accepted", status="False", reason="Invalid")
    assert "workloads: gateway" in told["message"]
    assert (await becomes(api, "Agent", "one"))["status"] == "True"


async def test_a_services_queues_are_made_once(api: ApiServer, operator: OperatorProcess) -> None:
    await put(api, agent("one"))
    await becomes(api, "Agent", "one", type="Accepted", status="True")
    [job] = api.all("Job")
    await api.set_status("Job", job["metadata"]["name"], {"succeeded": 1})
    made_by = [job["metadata"]["name"]]
    await api.until(lambda: ((api.find("Agent", "one") or {})["status"]).get("provisioned") == made_by, "noted")
    api.store.delete(api.resource("Job"), "cadre", job["metadata"]["name"])
    await put(api, agent("one", instructions="Briefly."))
    await becomes(api, "Agent", "one", type="Accepted", status="True")
    assert api.all("Job") == []


async def test_an_agent_that_goes_back_to_what_it_was_has_its_card_at_rest_put_again(
    api: ApiServer, stopped: OperatorProcess, tmp_path: Path
) -> None:
    """And a second revision's Job takes it away from no one: it has none."""
    api.store.resources.append(Resource("keda.sh", "v1alpha1", "scaledobjects", "ScaledObject"))
    (tmp_path / "rest.yaml").write_text("keda: true\nworkloads: {agent/oracle: {scale: {min: 0}}}\n")
    await stopped.start("-f", str(tmp_path / "rest.yaml"))

    async def put_by(description: str) -> str:
        """The name of the one Job that has put its card, which is done then."""

        def puts() -> str:
            jobs = api.all("Job")
            return jobs[0]["metadata"]["name"] if len(jobs) == 1 and description in str(jobs) else ""

        await put(api, {**made("Agent", "oracle", description=description)})
        name = str(await api.until(puts, f"a Job puts the card: {description}"))
        await api.set_status("Job", name, {"succeeded": 1})
        await api.until(
            lambda: (api.find("Agent", "oracle") or {}).get("status", {}).get("provisioned") == [name],
            "noted",
        )
        return name

    first = await put_by("Answers.")
    await put_by("Answers at length.")
    assert await put_by("Answers.") == first, "it is made anew"

    second = agent("oracle-next", instructions="Be long.")
    second["metadata"]["annotations"] = {"cadre.dev/revision-of": "oracle"}
    await put(api, second)
    await becomes(api, "Agent", "oracle-next", type="Accepted", status="True")
    assert [one["metadata"]["name"] for one in api.all("Job")] == [first]


async def test_two_revisions_are_scaled_each_by_its_own(
    api: ApiServer, stopped: OperatorProcess, tmp_path: Path
) -> None:
    """In a cluster that has KEDA."""
    (tmp_path / "keda.yaml").write_text("keda: true\n")
    api.store.resources.append(Resource("keda.sh", "v1alpha1", "scaledobjects", "ScaledObject"))
    await stopped.start("-f", str(tmp_path / "keda.yaml"))
    next_one = agent("oracle-next", instructions="Be long.")
    next_one["metadata"]["annotations"] = {"cadre.dev/revision-of": "oracle"}

    def asked(name: str) -> list[str]:
        """Return what the triggers of a ScaledObject ask for."""
        found = api.find("ScaledObject", name) or {"spec": {"triggers": []}}
        about = [trigger["metadata"] for trigger in found["spec"]["triggers"]]
        return sorted({one.get("consumer") or one["url"] for one in about})

    await put(api, agent("oracle", instructions="Be brief."))
    await api.until(lambda: asked("agent-oracle") == ["agent-oracle"], "it is scaled by its queue")
    await put(api, next_one)
    lag = "http://gateway.cadre.svc.cluster.local/v1/agents/oracle/lag"
    await api.until(lambda: asked("agent-oracle-next") == [f"{lag}?beside=oracle-next"], "the second is scaled")
    await api.until(lambda: asked("agent-oracle") == [lag], "the first is scaled by what is its own")
    pod = (api.find("Deployment", "agent-oracle-next") or {})["spec"]["template"]["spec"]
    assert {"name": "CADRE_BESIDE", "value": "oracle-next"} in pod["containers"][0]["env"]
    managed = api.store.managed_fields(api.find("Deployment", "agent-oracle-next") or {})
    assert all("f:replicas" not in one["fieldsV1"]["f:spec"] for one in managed)

    api.store.delete(api.resource("Agent"), "cadre", "oracle-next")
    await api.notify()
    await api.until(lambda: api.find("ScaledObject", "agent-oracle-next") is None, "it goes with its agent")
    await api.until(lambda: asked("agent-oracle") == ["agent-oracle"], "the first is scaled by its queue again")


async def test_a_changed_list_of_users_is_brought_to_the_pods_of_nats_at_once(
    api: ApiServer, operator: OperatorProcess
) -> None:
    """Their kubelet looks at the Secret when the pod changes; and the list comes before the users' own pods."""
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {}}
    pod["metadata"] = {"name": "nats-0", "namespace": "cadre", "labels": {"app.kubernetes.io/name": "nats"}}
    await put(api, pod)

    def mark() -> str:
        found = (api.find("Pod", "nats-0") or {})["metadata"].get("annotations") or {}
        return str(found.get("cadre.dev/users-hash", ""))

    await put(api, agent("one"))
    first = await api.until(mark, "the pod is marked")
    await becomes(api, "Agent", "one", type="Accepted", status="True")
    await put(api, agent("one", instructions="Briefly."))
    await becomes(api, "Agent", "one", type="Accepted", status="True")
    assert mark() == first, "no user is new"
    await put(api, agent("two"))
    await api.until(lambda: mark() != first, "the pod is marked again")
    listed = int((api.find("Secret", "cadre-nats-server") or {})["metadata"]["resourceVersion"])
    await api.until(lambda: api.find("Deployment", "agent-two"), "its Deployment is there")
    assert listed < int((api.find("Deployment", "agent-two") or {})["metadata"]["resourceVersion"])


async def test_what_the_services_share_goes_with_the_last_of_them(
    api: ApiServer, operator: OperatorProcess, kubectl: Kubectl
) -> None:
    await put(api, made("Team", "base", description="What they share.", agents=[]), agent("one"))
    await becomes(api, "Agent", "one", type="Accepted", status="True")
    shared = ("cadre-nats-server", "cadre-nats-operator", "cadre-nats-provision")
    await api.until(lambda: {"gateway", "agent-one"} <= users(api), "all users are there")
    await kubectl("delete", "team", "base", "-n", "cadre")
    await api.until(lambda: "gateway" not in deployments(api), "the gateway is gone")
    assert api.find("Secret", "cadre-gateway") is None
    assert api.find("Secret", "cadre-nats-server") is not None, "the agent needs it"
    await kubectl("delete", "agent", "one", "-n", "cadre")
    await api.until(lambda: not any(api.find("Secret", name) for name in shared), "the list of users is gone as well")
    await api.until(lambda: api.all("Secret") == [], "no Secret is left")


def deployments(api: ApiServer) -> set[str]:
    return {one["metadata"]["name"] for one in api.all("Deployment")}


async def test_the_administrators_key_is_made_once(api: ApiServer, operator: OperatorProcess, kubectl: Kubectl) -> None:
    await put(api, made("Team", "base", description="What they share.", agents=[]))
    await becomes(api, "Team", "base", type="Accepted", status="True")
    key = admin_key(api)
    assert len(b64decode(key)) >= 32
    [owner] = (api.find("Secret", "cadre-gateway") or {})["metadata"]["ownerReferences"]
    assert owner["kind"] == "Team"
    rolled = gateway_digest(api)
    assert await operator.stop() == 0
    await put(api, agent("one"))
    await operator.start()
    await becomes(api, "Agent", "one", type="Accepted", status="True")
    assert (admin_key(api), gateway_digest(api)) == (key, rolled), "neither an edit nor a start makes another"
    await kubectl("delete", "secret", "cadre-gateway", "-n", "cadre")
    await api.until(lambda: admin_key(api) not in ("", key), "one that was deleted is made again")
    await api.until(lambda: gateway_digest(api) != rolled, "and the gateway is restarted with it")


def admin_key(api: ApiServer) -> str:
    found = api.find("Secret", "cadre-gateway")
    return str(found["data"]["CADRE_ADMIN_KEY"]) if found else ""


def gateway_digest(api: ApiServer) -> str:
    template = (api.find("Deployment", "gateway") or {})["spec"]["template"]
    return str((template["metadata"].get("annotations") or {}).get("cadre.dev/gateway-secret-hash", ""))


async def test_a_secret_of_the_administrator_that_is_there_is_taken(api: ApiServer, operator: OperatorProcess) -> None:
    mine = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "cadre-gateway", "namespace": "cadre"},
        "data": {"CADRE_ADMIN_KEY": b64encode(b"mine").decode()},
    }
    await put(api, mine, made("Team", "base", description="What they share.", agents=[]))
    await becomes(api, "Team", "base", type="Accepted", status="True")
    found = api.find("Secret", "cadre-gateway") or {}
    assert found["data"] == mine["data"]
    assert not found["metadata"].get("ownerReferences")
    assert not found["metadata"].get("labels")
    assert gateway_digest(api)


async def test_no_secret_is_made_for_who_has_one_or_needs_none(api: ApiServer, operator: OperatorProcess) -> None:
    own = values_map({"gateway": {"secret": "mine"}})
    await put(api, own, made("Team", "base", description="What they share.", agents=[]))
    await becomes(api, "Team", "base", type="Accepted", status="True")
    assert api.find("Secret", "cadre-gateway") is None
    assert api.find("Secret", "mine") is None
    asked = (api.find("Deployment", "gateway") or {})["spec"]["template"]["spec"]["containers"][0]["env"]
    [reference] = [one["valueFrom"]["secretKeyRef"] for one in asked if one["name"] == "CADRE_ADMIN_KEY"]
    assert reference["name"] == "mine"
    await put(api, values_map({"workloads": {"gateway": {"env": {"CADRE_AUTH": "oidc"}}}}))
    await api.until(lambda: "CADRE_ADMIN_KEY" not in str(api.find("Deployment", "gateway")), "it asks for none")
    assert api.find("Secret", "cadre-gateway") is None


def values_map(values: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "cadre-values", "namespace": "cadre"},
        "data": {"kubernetes.yaml": yaml.safe_dump(values)},
    }


async def test_embedded_memories_are_kept_on_a_claim_that_stays(
    api: ApiServer, operator: OperatorProcess, kubectl: Kubectl
) -> None:
    memory = {"enabled": True, "engine": "embedded", "storage": {"size": "3Gi", "className": "fast"}}
    await put(
        api,
        values_map({"memory": memory}),
        made("Team", "base", description="What they share.", agents=[]),
    )
    await becomes(api, "Team", "base", type="Accepted", status="True")
    claim = api.find("PersistentVolumeClaim", "memory") or {}
    assert claim["spec"]["resources"] == {"requests": {"storage": "3Gi"}}
    assert claim["spec"]["storageClassName"] == "fast"
    assert not claim["metadata"].get("ownerReferences")
    spec = (api.find("Deployment", "memory") or {})["spec"]
    assert spec["strategy"] == {"type": "Recreate"}
    assert {"name": "memories", "persistentVolumeClaim": {"claimName": "memory"}} in spec["template"]["spec"]["volumes"]
    version = claim["metadata"]["resourceVersion"]
    await put(api, values_map({"memory": {**memory, "storage": {"size": "9Gi"}}}), agent("one"))
    await becomes(api, "Agent", "one", type="Accepted", status="True")
    await kubectl("delete", "team", "base", "-n", "cadre")
    await api.until(lambda: "memory" not in deployments(api), "the service is gone")
    kept = api.find("PersistentVolumeClaim", "memory") or {}
    assert kept["metadata"]["resourceVersion"] == version, "what is there is taken, and stays"

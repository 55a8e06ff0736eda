"""A team becomes the manifests that a cluster needs, valid for every Kubernetes in use, and every choice shows."""

from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from cadre.cli.deployment.k8s import as_yaml
from cadre.deploy.k8s.components import object_name
from cadre.deploy.k8s.manifest import Manifest, merged
from cadre.deploy.k8s.render import render
from cadre.deploy.k8s.values import read_values, setting
from cadre.deploy.team_components import components_of
from cadre.deploy.team_file import read_team
from cadre.errors import SpecError
from cadre.spec.agent_file import read_agent
from cadre.telemetry.tracing.otlp_json import resource_of
from unit.k8s.faults import faults
from unit.k8s.shipped import GIVEN, TEAM, env_of, main_of, pick, pod_of, rendered

MINORS = ["1.27", "1.30", "1.37"]
AGENTS = sorted(read_team(TEAM).agents)
WORKLOADS = [*(f"agent-{name}" for name in AGENTS), "tools-documents", "tools-tables"]
WORKLOADS += ["gateway", "memory", "sandbox-default"]
MODEL = {"model": {"url": "https://models.example/v1", "name": "m"}}


@pytest.mark.parametrize("minor", MINORS)
def test_every_manifest_is_strictly_valid(minor: str) -> None:
    validated = 0
    for manifest in rendered({"telemetry": {"url": "http://otel:4318"}, "nats": {"credentials": "n-{role}"}}):
        if manifest["kind"] == "ScaledObject":  # KEDA's own, which no schema of Kubernetes has
            continue
        kubernetes_validate.validate(manifest, minor, strict=True)
        validated += 1
    assert validated > 40


def test_a_schema_would_tell() -> None:
    manifest = pick(rendered(), "Deployment/gateway")
    manifest["spec"]["template"]["spec"]["terminationGracePeriod"] = 5
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, MINORS[-1], strict=True)


def test_each_service_is_a_deployment_with_a_disruption_budget() -> None:
    manifests = rendered()
    for kind in ("Deployment", "PodDisruptionBudget"):
        assert sorted(m["metadata"]["name"] for m in manifests if m["kind"] == kind) == sorted(WORKLOADS)
    for name in WORKLOADS:
        budget = pick(manifests, f"PodDisruptionBudget/{name}")["spec"]
        assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_pod_is_confined_probed_and_given_time(name: str) -> None:
    manifests = rendered()
    pod, main = pod_of(manifests, f"Deployment/{name}"), main_of(manifests, f"Deployment/{name}")
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert main["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    # Without NATS a gateway stays in its Service: it answers 503 and why, where nothing would answer.
    ready = "/readyz/self" if name == "gateway" else "/readyz"
    assert main["readinessProbe"]["httpGet"] == {"path": ready, "port": "http"}
    assert main["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    drain = int(env_of(manifests, f"Deployment/{name}")["CADRE_DRAIN_SECONDS"])
    linger = 5 if name == "gateway" else 0
    assert pod["terminationGracePeriodSeconds"] == drain + 10 + linger
    tmp = next(volume for volume in pod["volumes"] if volume["name"] == "tmp")
    assert tmp["emptyDir"]["medium"] == "Memory"
    assert "sizeLimit" in tmp["emptyDir"]


def test_an_agents_file_comes_as_it_is_and_only_its_change_rolls_it(tmp_path: Path) -> None:
    manifests = rendered()
    file = tmp_path / "manager.yaml"
    file.write_text(pick(manifests, "ConfigMap/agent-manager")["data"]["manager.yaml"])
    assert read_agent(file) == read_agent(TEAM / "manager.yaml")

    def hashes(team: Path) -> dict[str, str]:
        values = read_values(MODEL)
        found = [m for ms in render(components_of(read_team(team), values), values).values() for m in ms]
        return {
            m["metadata"]["name"]: m["spec"]["template"]["metadata"]["annotations"]["cadre.dev/spec-hash"]
            for m in found
            if m["kind"] == "Deployment" and m["metadata"]["name"].startswith("agent-")
        }

    team = small_team(tmp_path / "team")
    before = hashes(team)
    (team / "b.yaml").write_text((team / "b.yaml").read_text().replace("Second.", "Second, changed."))
    after = hashes(team)
    assert {name for name in before if before[name] != after[name]} == {"agent-b"}


def test_secrets_are_named_and_never_shown() -> None:
    manifests = rendered({"nats": {"credentials": "cadre-nats-{role}"}, "qdrant": {"secret": "vectors"}})
    assert not [m for m in manifests if m["kind"] == "Secret"]
    key = {"secretKeyRef": {"name": "cadre-model", "key": "CADRE_MODEL_KEY"}}
    for name in WORKLOADS:
        variables = env_of(manifests, f"Deployment/{name}")
        assert variables.get("CADRE_MODEL_KEY") == (key if name.startswith("agent-") else None)
        role = name.partition("-")[0]
        volume = next(v for v in pod_of(manifests, f"Deployment/{name}")["volumes"] if v["name"] == "nats")
        assert volume["secret"] == {"secretName": f"cadre-nats-{role}", "defaultMode": 0o440}
    assert env_of(manifests, "Deployment/memory")["QDRANT_API_KEY"]["secretKeyRef"]["name"] == "vectors"
    assert not [
        v
        for v in env_of(manifests, "Deployment/sandbox-default").values()
        if isinstance(v, dict) and "secretKeyRef" in v
    ]


def test_the_index_is_a_file_of_each_gateway_or_a_database_of_all() -> None:
    for index, volumes in ({}, {"tmp", "nats", "index"}), ({"secret": "cadre-index"}, {"tmp", "nats"}):
        manifests = rendered({"index": index})
        url = env_of(manifests, "Deployment/gateway")["CADRE_INDEX_URL"]
        key = {"secretKeyRef": {"name": "cadre-index", "key": "CADRE_INDEX_URL"}}
        assert url == (key if index else "sqlite:///index/runs.db")
        assert {one["name"] for one in pod_of(manifests, "Deployment/gateway")["volumes"]} == volumes


@pytest.mark.parametrize(
    ("env", "secrets"),
    [
        ({}, {"CADRE_ADMIN_KEY"}),
        ({"CADRE_AUTH": "off"}, set()),
        ({"CADRE_AUTH": "oidc"}, set()),
        ({"CADRE_AUTH": "oidc", "CADRE_OIDC_CLIENT_ID": "cadre"}, {"CADRE_OIDC_CLIENT_SECRET"}),
        ({"CADRE_AUTH": "oidc", "CADRE_OIDC_CLIENT_ID": "cadre", "CADRE_OIDC_CLIENT_SECRET": ""}, set()),
        (
            {"CADRE_AUTH": "keys,oidc", "CADRE_OIDC_CLIENT_ID": "cadre"},
            {"CADRE_ADMIN_KEY", "CADRE_OIDC_CLIENT_SECRET"},
        ),
    ],
)
def test_the_gateway_has_the_secrets_of_how_it_lets_people_in(env: dict[str, str], secrets: set[str]) -> None:
    variables = env_of(rendered({"workloads": {"gateway": {"env": env}}}), "Deployment/gateway")
    assert variables["CADRE_AUTH"] == env.get("CADRE_AUTH", "keys")
    held = {name: value for name, value in variables.items() if isinstance(value, dict) and "secretKeyRef" in value}
    assert held == {name: {"secretKeyRef": {"name": "cadre-gateway", "key": name}} for name in secrets}


def test_a_job_makes_every_queue_that_is_scaled_by() -> None:
    manifests = rendered()
    job = pick(manifests, "Job/cadre-provision-*")
    arguments = job["spec"]["template"]["spec"]["containers"][0]["args"]
    assert arguments[0] == "provision"
    made = {
        f"{a.removeprefix('--').replace('pool', 'code')}-{b}"
        for a, b in zip(arguments[1::2], arguments[2::2], strict=True)
    }
    asked = {t["metadata"]["consumer"] for m in manifests if m["kind"] == "ScaledObject" for t in m["spec"]["triggers"]}
    assert asked <= made
    # Who goes back to this one has it run again once it is gone; docs/deploy.md says how to have it sooner.
    assert job["spec"]["ttlSecondsAfterFinished"] <= 300
    assert job["metadata"]["labels"]["app.kubernetes.io/component"] == "provision"
    assert pick(rendered(), "Job/cadre-provision-*")["metadata"]["name"] == job["metadata"]["name"]
    # A Job's template cannot be changed: no matter what changes it makes another Job.
    for values in (
        {"image": "cadre:0.2.0"},
        {"workloads": {"*": {"pod": {"imagePullSecrets": [{"name": "registry"}]}}}},
        {"workloads": {"provision": {"env": {"CADRE_LOG_LEVEL": "DEBUG"}}}},
        {"nats": {"prefix": "other"}},
        {"nats": {"tls": {"secret": "nats-tls"}}},
    ):
        other = pick(rendered(values), "Job/cadre-provision-*")
        assert other["metadata"]["name"] != job["metadata"]["name"], values


def test_any_field_of_any_pod_can_be_set() -> None:
    manifests = rendered(
        {
            "workloads": {
                "*": {"pod": {"imagePullSecrets": [{"name": "registry"}], "tolerations": [{"key": "a"}]}},
                "agent/*": {"pod": {"tolerations": [{"key": "b"}]}},
                "agent/manager": {
                    "drain": 30,
                    "env": {"CADRE_LOG_LEVEL": "DEBUG"},
                    "secrets": {"OTHER_KEY": "keys/other"},
                    "pod": {
                        "terminationGracePeriodSeconds": 300,
                        "containers": [
                            {"name": "main", "resources": {"limits": {"memory": "1Gi"}}},
                            {"name": "side", "image": "x"},
                        ],
                    },
                },
                "sandbox/*": {"pod": {"runtimeClassName": "gvisor"}},
            }
        }
    )
    manager, checker = (
        pod_of(manifests, "Deployment/agent-manager"),
        pod_of(manifests, "Deployment/agent-checker"),
    )
    assert manager["imagePullSecrets"] == [{"name": "registry"}]
    assert checker["tolerations"][:-2] == [{"key": "b"}]
    assert pod_of(manifests, "Deployment/gateway")["tolerations"][:-2] == [{"key": "a"}]
    assert manager["terminationGracePeriodSeconds"] == 300
    main, side = manager["containers"]
    assert main["resources"] == {"requests": {"cpu": "10m", "memory": "96Mi"}, "limits": {"memory": "1Gi"}}
    assert main["args"] == ["agent", "/etc/cadre/manager.yaml"]
    assert side == {"name": "side", "image": "x"}
    variables = env_of(manifests, "Deployment/agent-manager")
    assert (variables["CADRE_DRAIN_SECONDS"], variables["CADRE_LOG_LEVEL"]) == ("30", "DEBUG")
    assert variables["OTHER_KEY"] == {"secretKeyRef": {"name": "keys", "key": "other"}}
    assert pod_of(manifests, "Deployment/sandbox-default")["runtimeClassName"] == "gvisor"


def test_one_service_alone_brings_what_it_needs_and_nothing_of_others() -> None:
    manifests = rendered(only="agent/checker")
    kinds = [
        "ConfigMap",
        "Deployment",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "ScaledObject",
        "ServiceAccount",
    ]
    assert sorted(m["kind"] for m in manifests if m["metadata"]["name"] == "agent-checker") == kinds
    assert faults(manifests, GIVEN) == []
    assert faults(rendered(only="tools/tables"), GIVEN) == []
    assert pick(manifests, "Job/*")["spec"]["template"]["spec"]["containers"][0]["args"] == [
        "provision",
        "--agent",
        "checker",
    ]


def test_the_tracer_is_there_where_traces_go_somewhere() -> None:
    manifests = rendered({"telemetry": {"url": "http://otel:4318"}})
    assert main_of(manifests, "Deployment/tracer")["args"] == ["tracer"]
    assert env_of(manifests, "Deployment/tracer")["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://otel:4318"


def test_yaml_reads_back_as_it_was() -> None:
    manifests = rendered()
    assert list(yaml.safe_load_all(as_yaml(manifests))) == manifests
    assert "&id" not in as_yaml(manifests)


def small_team(folder: Path, tool: str = "", **agent: str) -> Path:
    folder.mkdir()
    lines = {"a": "First.", "b": "Second."}
    for name, text in lines.items():
        more = "".join(f"\n  {key}: {value}" for key, value in agent.items())
        (folder / f"{name}.yaml").write_text(
            f"apiVersion: cadre.dev/v1\nkind: Agent\nmetadata: {{name: {name}}}\nspec:\n  description: {text}{more}\n"
        )
    tools = "\n  tools: [tools.py]" if tool else ""
    if tool:
        (folder / "tools.py").write_text(tool)
    (folder / "team.yaml").write_text(
        f"apiVersion: cadre.dev/v1\nkind: Team\nmetadata: {{name: small}}\nspec:\n  agents: [a.yaml, b.yaml]{tools}\n"
    )
    return folder


def test_a_prompt_file_travels_with_its_agent(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("system: {}\n")
    team = small_team(tmp_path / "team", prompts="../own.yaml")
    component = next(p for p in components_of(read_team(team), read_values()) if p.key == "agent/a")
    assert component.files is not None
    assert sorted(component.files.contents) == ["own.yaml", "team/a.yaml"]
    assert component.arguments == ["agent", "/etc/cadre/team/a.yaml"]


def test_a_model_file_travels_with_its_agent_and_its_key_is_named(tmp_path: Path) -> None:
    team = small_team(tmp_path / "team", model="{fallbacks: [{use: big, temperature: 0}]}")
    (team / "models").mkdir()
    (team / "models" / "big.yaml").write_text(
        "apiVersion: cadre.dev/v1\nkind: Model\nmetadata: {name: big}\n"
        "spec: {url: 'https://models.example:8443/v1', key_env: BIG_KEY}\n"
    )
    values = read_values(MODEL)
    manifests = [m for ms in render(components_of(read_team(team), values), values).values() for m in ms]
    files = pick(manifests, "ConfigMap/agent-a")["data"]
    pod = pick(manifests, "Deployment/agent-a")["spec"]["template"]["spec"]
    paths = {one["key"]: one["path"] for v in pod["volumes"] for one in v.get("configMap", {}).get("items", [])}
    for key, text in files.items():
        place = tmp_path / "mounted" / paths[key]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    assert read_agent(tmp_path / "mounted" / "a.yaml") == read_agent(team / "a.yaml")
    key = {"secretKeyRef": {"name": "cadre-model", "key": "BIG_KEY"}}
    assert env_of(manifests, "Deployment/agent-a")["BIG_KEY"] == key
    assert "8443" in str([m for m in manifests if m["kind"] == "NetworkPolicy"])


def test_tools_that_cannot_be_imported_here_are_named_in_the_values(tmp_path: Path) -> None:
    team = small_team(tmp_path / "team", tool="import a_library_of_the_image_only\n")
    with pytest.raises(SpecError, match=r"tools/tools: \{tools"):
        components_of(read_team(team), read_values())
    values = read_values({"workloads": {"tools/tools": {"tools": ["dig"]}}})
    component = next(p for p in components_of(read_team(team), values) if p.key == "tools/tools")
    assert component.consumers == ["tool-dig"]


def test_a_folder_too_large_for_a_config_map_says_what_to_do(tmp_path: Path) -> None:
    team = small_team(
        tmp_path / "team",
        tool="from cadre import tool\n\n@tool\ndef dig() -> str:\n    '''Dig.'''\n    return ''\n",
    )
    (team / "data.bin").write_bytes(bytes(range(256)) * 5000)
    values = read_values(MODEL)
    with pytest.raises(SpecError, match="--set files="):
        render(components_of(read_team(team), values), values)
    values = read_values(MODEL, setting("files=/teams/small"))
    manifests = [m for ms in render(components_of(read_team(team), values), values).values() for m in ms]
    assert main_of(manifests, "Deployment/tools-tools")["args"] == ["tools", "/teams/small/tools.py"]


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("nats.shrds=3", "nats: .*`shrds`"),
        ("nats.shards=0", "nats.shards: Expected `int` >= 1"),
        ("nats.replicas=6", "nats.replicas: Expected `int` <= 5"),
        ("nats.url=nats", r"nats\.url: 'nats'"),
        ("workloads.agent/manger.replicas=2", "there is no 'agent/manger'"),
        ("workloads.tools/tables.scale.min=0", "tools/tables: scale: min .*1"),
        ("workloads.agent/manager.scale.max=0", "scale: 0 <= min <= max"),
        ("workloads.agent/manager.drain=-1", r"agent/manager: drain\b.*\b0\b"),
        ("workloads.agent/manager.secrets.KEY=alone", "write SECRET/KEY"),
        ("image", "write KEY=VALUE"),
    ],
)
def test_wrong_values_are_one_line_that_names_them(assignment: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        rendered(setting(assignment))


@pytest.mark.parametrize(
    ("name", "becomes"),
    [
        ("manager", "agent-manager"),
        ("Data_Analyst", r"agent-data-analyst-[0-9a-f]{8}"),
        ("x" * 64, r"agent-x{37}-[0-9a-f]{8}"),
    ],
)
def test_names_become_labels_and_stay_apart(name: str, becomes: str) -> None:
    import re

    assert re.fullmatch(becomes, object_name("agent", name))
    assert len(object_name("agent", name)) <= 52
    assert object_name("agent", "a_b") != object_name("agent", "a-b")


def test_an_override_replaces_adds_and_takes_away() -> None:
    base = {"a": {"x": 1, "y": 2}, "list": [1, 2], "named": [{"name": "m", "v": 1}, {"name": "n"}]}
    over = {"a": {"x": None, "z": 3}, "list": [3], "named": [{"name": "m", "v": 2}, {"name": "o"}]}
    assert merged(base, over) == {
        "a": {"y": 2, "z": 3},
        "list": [3],
        "named": [{"name": "m", "v": 2}, {"name": "n"}, {"name": "o"}],
    }
    assert base["a"] == {"x": 1, "y": 2}


DEAD_NODE = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]


def leaves_after(manifests: list[Manifest], name: str) -> list[int]:
    """The seconds after which a pod leaves a node that is not ready, and one that cannot be reached."""
    found = {one["key"]: one for one in pod_of(manifests, name).get("tolerations") or ()}
    return [found[key]["tolerationSeconds"] for key in DEAD_NODE if key in found]


def test_pods_leave_a_dead_node_at_once_and_stand_on_several() -> None:
    manifests = rendered()
    for one in manifests:
        if one["kind"] != "Deployment":
            continue
        name = f"Deployment/{one['metadata']['name']}"
        assert leaves_after(manifests, name) == [0, 0], name
        [apart] = pod_of(manifests, name)["affinity"]["podAntiAffinity"][
            "preferredDuringSchedulingIgnoredDuringExecution"
        ]
        wanted = apart["podAffinityTerm"]["labelSelector"]["matchLabels"]
        assert wanted.items() <= one["spec"]["template"]["metadata"]["labels"].items(), "all kinds together"
    longer = rendered({"workloads": {"gateway": {"failover": 60}}})
    assert leaves_after(longer, "Deployment/gateway") == [60, 60]
    assert leaves_after(longer, "Deployment/agent-manager") == [0, 0]
    own = [{"key": key, "operator": "Exists", "tolerationSeconds": 9} for key in DEAD_NODE]
    said = rendered({"workloads": {"agent/*": {"pod": {"tolerations": own}}}})
    assert pod_of(said, "Deployment/agent-manager")["tolerations"] == own


def test_a_pod_that_owns_a_volume_stays_where_that_may_be() -> None:
    volume = {"name": "kept", "persistentVolumeClaim": {"claimName": "kept"}}
    manifests = rendered({"workloads": {"agent/*": {"pod": {"volumes": [volume]}}}})
    assert leaves_after(manifests, "Deployment/agent-manager") == []
    assert leaves_after(manifests, "Deployment/gateway") == [0, 0]


def test_a_gateway_alone_has_its_streams_made() -> None:
    values = read_values({"model": {"url": "https://models.example/v1", "name": "m"}})
    files = render(components_of(read_team(TEAM), values), values, "gateway")
    job = pick([one for many in files.values() for one in many], "Job/cadre-provision-*")
    assert job["spec"]["template"]["spec"]["containers"][0]["args"] == ["provision"]


def test_telemetry_names_its_pod_namespace_and_node() -> None:
    """A tracer speaks for the pods of others, so it does not name its own; what the user sets comes last and wins."""
    given = {"OTEL_RESOURCE_ATTRIBUTES": "service.namespace=mine"}
    manifests = rendered({"telemetry": {"url": "http://otel:4318"}, "workloads": {"gateway": {"env": given}}})
    gateway = env_of(manifests, "Deployment/gateway")["OTEL_RESOURCE_ATTRIBUTES"].split(",")
    assert gateway == [
        "service.namespace=$(CADRE_POD_NAMESPACE)",
        "k8s.namespace.name=$(CADRE_POD_NAMESPACE)",
        "k8s.pod.name=$(CADRE_INSTANCE)",
        "k8s.node.name=$(CADRE_NODE)",
        "service.namespace=mine",
    ]
    tracer = env_of(manifests, "Deployment/tracer")["OTEL_RESOURCE_ATTRIBUTES"]
    assert tracer == "service.namespace=$(CADRE_POD_NAMESPACE),k8s.namespace.name=$(CADRE_POD_NAMESPACE)"
    names = [one["name"] for one in main_of(manifests, "Deployment/gateway")["env"]]
    assert names.index("CADRE_NODE") < names.index("OTEL_RESOURCE_ATTRIBUTES")
    fields = {
        one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"]
        for one in main_of(manifests, "Deployment/gateway")["env"]
        if "fieldRef" in one.get("valueFrom", {})
    }
    assert fields["CADRE_NODE"] == "spec.nodeName"


def test_a_replica_is_its_pod_where_the_namespace_is_known() -> None:
    there = resource_of("boss", "boss-7f-x", also={"k8s.namespace.name": "team"})
    assert there["k8s.pod.name"] == "boss-7f-x"
    assert "k8s.pod.name" not in resource_of("boss", "here-1")

"""Every workload is given the key of its NATS user, by the name that `cadre auth init` gives its Secret."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cadre.deploy import nats_files
from cadre.deploy.k8s.manifest import Manifest
from cadre.deploy.k8s.values import setting
from cadre.deploy.team_components import roles_of
from cadre.deploy.team_file import read_team
from cadre.protocol.topology import Topology
from harness.nats_server import nats_binary
from unit.k8s.faults import faults
from unit.k8s.shipped import ROOT, TEAM, env_of, main_of, pick, pod_of, rendered

OTHERS = ["Secret/cadre-gateway", "Secret/cadre-model"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Manifest]:
    """The Secrets of the shipped team, by name."""
    folder = tmp_path_factory.mktemp("auth")
    nats_files.update_users(folder, roles_of(read_team(TEAM), memory=True), Topology(4))
    found = yaml.safe_load_all(nats_files.secrets(folder, "cadre"))
    return {secret["metadata"]["name"]: secret for secret in found}


@pytest.fixture(scope="module")
def manifests() -> list[Manifest]:
    return rendered({"telemetry": {"url": "http://otel:4318"}})


def dev() -> list[Manifest]:
    """Return NATS as the overlay has it, with the ConfigMap that kustomize makes."""
    folder = ROOT / "deploy" / "k8s" / "dev"
    [made] = yaml.safe_load((folder / "kustomization.yaml").read_text())["configMapGenerator"]
    about = {"name": made["name"], "namespace": made["namespace"], "labels": made["options"]["labels"]}
    data = {file: (folder / file).read_text() for file in made["files"]}
    configuration = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": data}
    return [configuration, *yaml.safe_load_all((folder / "nats.yaml").read_text())]


def test_the_secrets_that_are_made_are_those_that_are_mounted(
    made: dict[str, Manifest], manifests: list[Manifest]
) -> None:
    asked = {}
    for manifest in manifests:
        if manifest["kind"] in ("Deployment", "Job"):
            called = f"{manifest['kind']}/{manifest['metadata']['name']}"
            [volume] = [one for one in pod_of(manifests, called)["volumes"] if one["name"] == "nats"]
            asked[manifest["metadata"]["name"]] = volume["secret"]["secretName"]
            [mount] = [one for one in main_of(manifests, called)["volumeMounts"] if one["name"] == "nats"]
            file = Path(env_of(manifests, called)["CADRE_NATS_CREDENTIALS"])
            assert str(file.parent) == mount["mountPath"]
            assert mount["readOnly"]
            assert file.name in made[volume["secret"]["secretName"]]["stringData"]
    assert set(asked.values()) == set(made) - {nats_files.SERVER_SECRET}
    assert asked["agent-manager"] == "cadre-nats-agent-manager"
    assert len(set(asked.values())) == len(asked), "two workloads have one key"


def test_every_secret_is_among_those_that_are_made(made: dict[str, Manifest], manifests: list[Manifest]) -> None:
    whole = [*manifests, *dev(), *made.values()]
    assert faults(whole, OTHERS) == []
    for name in made:
        without = [m for m in whole if m["metadata"]["name"] != name]
        assert any(f"no Secret/{name}" in one for one in faults(without, OTHERS)), name


def test_no_key_is_in_the_servers_secret(made: dict[str, Manifest]) -> None:
    seeds = {one["stringData"]["nats.nk"].split()[-1] for one in made.values() if "nats.nk" in one["stringData"]}
    assert len(seeds) == len(made) - 1
    assert not any(seed in made[nats_files.SERVER_SECRET]["stringData"]["auth.conf"] for seed in seeds)


def test_the_server_of_the_overlay_dev_takes_the_users_in(made: dict[str, Manifest], tmp_path: Path) -> None:
    pod = pod_of(dev(), "StatefulSet/nats")
    [volume] = [one for one in pod["volumes"] if one["name"] == "config"]
    configuration, users = volume["projected"]["sources"]
    for key, text in pick(dev(), f"ConfigMap/{configuration['configMap']['name']}")["data"].items():
        (tmp_path / key).write_text(text)
    for item in users["secret"]["items"]:
        file = tmp_path / item["path"]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(made[users["secret"]["name"]]["stringData"][item["key"]])
    checked(tmp_path / "nats.conf")
    (tmp_path / "users" / "auth.conf").unlink()
    with pytest.raises(subprocess.CalledProcessError):
        checked(tmp_path / "nats.conf")


def test_the_servers_of_the_overlay_prod_take_the_users_in(made: dict[str, Manifest], tmp_path: Path) -> None:
    """As far as it can be seen without the chart: it mounts what it includes, and that is the Secret."""
    values: dict[str, Any] = yaml.safe_load((ROOT / "deploy/k8s/prod/nats-values.yaml").read_text())
    [mount] = [patch["value"] for patch in values["container"]["patch"]]
    [volume] = [patch["value"] for patch in values["podTemplate"]["patch"]]
    assert volume["name"] == mount["name"]
    # The chart's own file lies in /etc/nats-config.
    included = Path("/etc/nats-config", values["config"]["merge"]["$include"])
    assert Path(mount["mountPath"], "auth.conf") == Path("/etc", included.relative_to("/etc/nats-config/.."))
    text = made[volume["secret"]["secretName"]]["stringData"]["auth.conf"]
    (tmp_path / "nats-users").mkdir()
    (tmp_path / "nats-users" / "auth.conf").write_text(text)
    (tmp_path / "nats-config").mkdir()
    file = tmp_path / "nats-config" / "nats.conf"
    file.write_text(f"{{ include {values['config']['merge']['$include']}; port: 4222 }}\n")
    checked(file)


def checked(file: Path) -> None:
    subprocess.run([nats_binary(), "-t", "-c", str(file)], check=True, capture_output=True, timeout=60)


def test_a_value_switches_it_off() -> None:
    manifests = rendered(setting("nats.credentials="))
    for manifest in manifests:
        if manifest["kind"] in ("Deployment", "Job"):
            called = f"{manifest['kind']}/{manifest['metadata']['name']}"
            assert "CADRE_NATS_CREDENTIALS" not in env_of(manifests, called)
            assert not [v for v in pod_of(manifests, called)["volumes"] if v["name"] == "nats"]


def test_a_job_with_other_credentials_is_another_job() -> None:
    """Or it could not be applied over the one that is there."""
    with_users, without = (pick(rendered(*layer), "Job/*") for layer in ([], [setting("nats.credentials=")]))
    assert with_users["metadata"]["name"] != without["metadata"]["name"]

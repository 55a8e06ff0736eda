"""`cadre k8s` on files: a kustomize base that is written again, overlays that build on it."""

import shutil
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner, Result

from cadre.cli.main import group
from cadre.deploy import nats_files
from cadre.deploy.k8s.manifest import Manifest
from cadre.deploy.team_components import roles_of
from cadre.deploy.team_file import read_team
from harness.pods import secret
from unit.k8s.faults import faults
from unit.k8s.reach import End, may_connect
from unit.k8s.shipped import GIVEN, ROOT, TEAM, pick

DEPLOY = ROOT / "deploy" / "k8s"
MODEL = ("--set", "model.url=https://models.example/v1", "--set", "model.name=m")
OWN = "kind: Kustomization\nresources: [../dev]\ncomponents: [../sign-in]\n"
STRANGER = End({"app": "ingress"}, "elsewhere", "10.244.0.13")
ELSEWHERE = ["NetworkPolicy/nats", "NetworkPolicy/qdrant"]
"""In `prod`: the pods that they select are the charts'."""


def cadre(*arguments: object) -> Result:
    return CliRunner().invoke(group, [str(a) for a in arguments], standalone_mode=False)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    done = cadre("k8s", "render", TEAM, *MODEL, "-f", DEPLOY / "values.yaml", "-o", folder)
    assert done.exception is None, done.exception
    return folder


def test_a_folder_is_a_kustomize_base_of_all_files_in_it(base: Path) -> None:
    listed = yaml.safe_load((base / "kustomization.yaml").read_text())["resources"]
    assert sorted(listed) == sorted(f.name for f in base.iterdir() if f.name != "kustomization.yaml")
    assert {"cadre.yaml", "gateway.yaml", "agent-manager.yaml", "memory.yaml"} <= set(listed)
    found = [m for name in listed for m in yaml.safe_load_all((base / name).read_text())]
    assert faults(found, GIVEN) == []


def test_rendering_again_removes_what_is_gone_and_leaves_what_people_wrote(base: Path) -> None:
    (base / "own.yaml").write_text("kind: ConfigMap\n")
    (base / "agent-manager.yaml").rename(base / "agent-former.yaml")
    cadre("k8s", "render", TEAM, *MODEL, "-f", DEPLOY / "values.yaml", "-o", base)
    assert not (base / "agent-former.yaml").exists()
    assert (base / "own.yaml").exists()
    listed = yaml.safe_load((base / "kustomization.yaml").read_text())["resources"]
    assert "agent-manager.yaml" in listed
    assert "own.yaml" not in listed


def test_one_service_is_added_to_a_folder(base: Path) -> None:
    before = (base / "gateway.yaml").read_text()
    cadre("k8s", "render", TEAM, *MODEL, "--only", "agent/manager", "-o", base, "--set", "image=cadre:2")
    assert "image: cadre:2" in (base / "agent-manager.yaml").read_text()
    assert (base / "gateway.yaml").read_text() == before
    assert "gateway.yaml" in yaml.safe_load((base / "kustomization.yaml").read_text())["resources"]


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text("resources: []\n")
    done = cadre("k8s", "render", TEAM, *MODEL, "-o", tmp_path)
    assert "is not by `cadre k8s render`" in str(done.exception)
    assert [f.name for f in tmp_path.iterdir()] == ["kustomization.yaml"]


def test_values_lie_over_each_other(tmp_path: Path) -> None:
    for name, text in (("one", "image: a\nnamespace: one\n"), ("two", "image: b\n")):
        (tmp_path / f"{name}.yaml").write_text(text)
    files = ["-f", tmp_path / "one.yaml", "-f", tmp_path / "two.yaml"]
    done = cadre("k8s", "render", TEAM, *MODEL, *files, "--set", "keda=false", "--only", "gateway")
    gateway = pick(list(yaml.safe_load_all(done.output)), "Deployment/gateway")
    assert gateway["metadata"]["namespace"] == "one"
    assert gateway["spec"]["template"]["spec"]["containers"][0]["image"] == "b"


def test_a_teams_own_values_come_first(tmp_path: Path) -> None:
    team = shutil.copytree(TEAM, tmp_path / "apollo")
    (team / "kubernetes.yaml").write_text("image: own\nnamespace: own\n")
    done = cadre("k8s", "render", team, "--only", "gateway", "--set", "namespace=over")
    gateway = pick(list(yaml.safe_load_all(done.output)), "Deployment/gateway")
    assert gateway["metadata"]["namespace"] == "over"
    assert gateway["spec"]["template"]["spec"]["containers"][0]["image"] == "own"
    whole = list(yaml.safe_load_all(cadre("k8s", "render", team, *MODEL).output))
    assert "kubernetes.yaml" not in pick(whole, "ConfigMap/team-apollo")["data"]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("overlay", ["dev", "prod", "mine"])
def test_an_overlay_builds_and_has_no_fault(overlay: str, tmp_path: Path) -> None:
    for name in ("dev", "prod", "sign-in"):
        shutil.copytree(DEPLOY / name, tmp_path / name)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "kustomization.yaml").write_text(OWN)
    assert cadre("k8s", "render", TEAM, *MODEL, "-f", DEPLOY / "values.yaml", "-o", tmp_path / "base").exception is None
    built = subprocess.run(
        ["kubectl", "kustomize", str(tmp_path / overlay)], capture_output=True, text=True, check=True
    ).stdout
    manifests = list(yaml.safe_load_all(built))
    given = [
        *GIVEN,
        *{"prod": ELSEWHERE, "mine": ["Secret/oauth2-proxy", "Secret/cadre-tls"]}.get(overlay, []),
    ]
    assert faults(manifests, given) == []
    for manifest in manifests:
        if manifest["kind"] != "ScaledObject":
            kubernetes_validate.validate(manifest, "1.37", strict=True)
    scaled = any(m["kind"] == "ScaledObject" for m in manifests)
    assert scaled is (overlay == "prod")
    if overlay == "mine":
        proxy, gateway = (_pod_of(manifests, name) for name in ("oauth2-proxy", "gateway"))
        assert may_connect(manifests, STRANGER, proxy, 4180)
        assert may_connect(manifests, proxy, gateway, 8080)
        assert not may_connect(manifests, STRANGER, gateway, 8080)
    if overlay == "prod":
        copies = [
            v["value"]
            for m in manifests
            if m["kind"] in ("Deployment", "Job")
            for v in m["spec"]["template"]["spec"]["containers"][0]["env"]
            if v["name"] == "CADRE_REPLICAS"
        ]
        assert set(copies) == {"3"}


def _pod_of(manifests: list[Manifest], deployment: str) -> End:
    labels = pick(manifests, f"Deployment/{deployment}")["spec"]["template"]["metadata"]["labels"]
    return End(labels, "cadre", "10.244.0.20")


def test_keys_come_with_what_is_written(tmp_path: Path) -> None:
    keys, platform = tmp_path / "auth", ROOT / "deploy/k8s/values.yaml"
    whole = cadre("k8s", "render", TEAM, *MODEL, "-f", platform, "--set", "nats.shards=2", "--keys", keys)
    manifests = list(yaml.safe_load_all(whole.stdout))
    assert faults(manifests, ["Secret/cadre-gateway", "Secret/cadre-model"]) == []
    made = {role.user: role for role in nats_files.known_roles(keys)}
    known = {role.user: role for role in roles_of(read_team(TEAM), memory=True)}
    assert made == {user: role for user, role in known.items() if user != "tracer"}
    server = secret(manifests, nats_files.SERVER_SECRET)["auth.conf"]
    assert "CADRE-1" in server
    assert "MSG.GET.CADRE-2" not in server, "the values say how many shards there are"

    one = cadre("k8s", "render", TEAM, *MODEL, "--only", "agent/checker", "--keys", keys, "--set", "nats.shards=2")
    alone = list(yaml.safe_load_all(one.stdout))
    names = [m["metadata"]["name"] for m in alone if m["kind"] == "Secret"]
    assert names == ["cadre-nats-agent-checker", "cadre-nats-server"]
    assert "NetworkPolicy" in {m["kind"] for m in alone}
    assert secret(alone, names[0]) == secret(manifests, names[0]), "the key that it has"
    assert secret(alone, names[1])["auth.conf"] == server


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--only", "agent/checker", "--keys", "nowhere"], "nowhere has no users"),
        (["--keys", "auth", "-o", "base"], "--keys"),
        (["--keys", "auth", "--set", "nats.credentials=own-{workload}"], "nats.credentials"),
        (["--beside", "next"], "--only agent/NAME"),
    ],
)
def test_what_cannot_be_written(options: list[str], told: str, tmp_path: Path) -> None:
    given = [str(tmp_path / one) if one in ("nowhere", "auth", "base") else one for one in options]
    done = cadre("k8s", "render", TEAM, *MODEL, *given)
    assert told in str(done.exception)
    assert list(tmp_path.iterdir()) == []


def test_the_help_imports_nothing_of_it() -> None:
    code = (
        "import sys, cadre.cli.main as m; m.group(['--help'], standalone_mode=False);"
        " assert 'cadre.deploy.k8s' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)

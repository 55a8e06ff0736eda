"""The how-to, as a new administrator follows it: all its commands, in order, in a cluster that has nothing of ours."""

import json
import subprocess
from pathlib import Path

import pytest

from harness.played_page import blocks_of
from real_cluster.cluster import Cluster
from real_cluster.conftest import ROOT, add_model

PAGE = ROOT / "docs" / "how-to" / "deploy-to-kubernetes.md"
OURS = {
    "registry.example/cadre:1.0.0": "cadre:test",
    "registry.example/cadre:1.0.1": "cadre:next",
    "https://api.openai.com/v1": "http://scripted-model.models:8090/v1",
    "sk-…": "sk-any",
}


@pytest.mark.timeout(900)
def test_a_page_leads_from_an_empty_cluster_to_an_uninstall(cluster: Cluster, tmp_path: Path) -> None:
    add_model(cluster, "models")
    cluster.tag("cadre:test", "cadre:next")
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    script, count = ["set -eu", "trap 'kill $(jobs -p)' EXIT"], 0
    for block in blocks_of(PAGE):
        text = block.text
        for shown, one in OURS.items():
            text = text.replace(shown, one)
        if block.kind == "yaml":
            (tmp_path / block.title).write_text(text)
        elif block.kind == "sh":
            count += 1
            script += ["SECONDS=0", text, f'echo "block {count}: $SECONDS s"']
            script += [f"kubectl -n cadre get pods,deployments -o json > {count}.json"]
    done = subprocess.run(
        ["bash", "-x", "-c", "\n".join(script)],
        cwd=tmp_path,
        env=cluster.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0
    found = [json.loads((tmp_path / f"{one + 1}.json").read_text())["items"] for one in range(count)]
    restarts = [
        (pod["metadata"]["name"], one["restartCount"])
        for many in found
        for pod in many
        for one in pod["status"].get("containerStatuses", [])
        if one["restartCount"]
    ]
    assert restarts == []
    images = [
        {
            container["image"]
            for one in many
            if one["kind"] == "Deployment"
            for container in one["spec"]["template"]["spec"]["containers"]
        }
        for many in found
    ]
    before, after = {"cadre:test"}, {"cadre:next"}
    assert images == [before, before, before, after, before, set()]
    assert found[-1] == []

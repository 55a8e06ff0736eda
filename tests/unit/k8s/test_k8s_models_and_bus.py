"""Tests of what agents need to ask a model, and services to reach a bus behind TLS."""

import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml

from cadre.deploy.k8s.render import render
from cadre.deploy.k8s.values import Values, read_values
from cadre.deploy.team_components import components_of
from cadre.deploy.team_file import read_team
from cadre.errors import SpecError
from cadre.spec.model import Price
from cadre.spec.prices import Prices
from unit.k8s.faults import faults
from unit.k8s.shipped import GIVEN, ROOT, TEAM, env_of, main_of, pick, pod_of, rendered


def test_an_agent_without_a_model_is_not_rendered() -> None:
    values = read_values()
    with pytest.raises(SpecError, match=r"agent/manager: has no model\.url.*--set model\.url="):
        render(components_of(read_team(TEAM), values), values)
    values = read_values({"model": {"url": "https://models.example/v1"}})
    with pytest.raises(SpecError, match=r"has no model\.name"):
        render(components_of(read_team(TEAM), values), values)


def test_the_values_that_the_page_shows_can_be_rendered() -> None:
    """All keys stand there once, with their defaults or with an example."""
    page = (ROOT / "docs" / "deploy.md").read_text()
    [shown] = re.findall(r"```yaml\n(image:.*?)```", page, re.DOTALL)
    model = {"model": {"url": "https://models.example/v1", "name": "m"}}
    values = read_values(yaml.safe_load(shown), model)
    assert render(components_of(read_team(TEAM), values), values)
    assert {*yaml.safe_load(shown)} == {*Values.__struct_fields__}
    [proxied] = re.findall(r"    workloads:\n      gateway:\n.*?\n\n", page, re.DOTALL)
    values = read_values(model, yaml.safe_load(dedent(proxied)))
    assert render(components_of(read_team(TEAM), values), values)


@pytest.mark.parametrize(
    "layer",
    [
        {"model": {"url": "https://models.example/v1", "name": "m"}},
        {"workloads": {"agent/*": {"env": {"CADRE_MODEL_URL": "https://models.example/v1", "CADRE_MODEL": "m"}}}},
        {"workloads": {"agent/*": {"secrets": {"CADRE_MODEL_URL": "models/url", "CADRE_MODEL": "models/name"}}}},
    ],
)
def test_an_agents_model_may_be_named_in_several_places(layer: dict[str, Any]) -> None:
    values = read_values(layer)
    assert render(components_of(read_team(TEAM), values), values)["agent-manager"]


def test_prices_travel_with_each_agent(tmp_path: Path) -> None:
    manifests = rendered({"prices": {"gpt-x*": {"input": 2, "output": 8}}})
    assert env_of(manifests, "Deployment/agent-manager")["CADRE_PRICES"] == "/etc/cadre/.prices.yaml"
    assert "CADRE_PRICES" not in env_of(manifests, "Deployment/gateway")
    [volume] = [v for v in pod_of(manifests, "Deployment/agent-manager")["volumes"] if v["name"] == "files"]
    [item] = [one for one in volume["configMap"]["items"] if one["path"] == ".prices.yaml"]
    file = tmp_path / "prices.yaml"
    file.write_text(pick(manifests, "ConfigMap/agent-manager")["data"][item["key"]])
    assert Prices.read(str(file)).of("gpt-x-mini") == Price(input=2, output=8)
    assert main_of(manifests, "Deployment/agent-manager")["args"] == ["agent", "/etc/cadre/manager.yaml"]
    with pytest.raises(SpecError, match="prices"):
        read_values({"prices": {"gpt-x": {"input": 2}}})


@pytest.mark.parametrize(("client", "keys"), [(False, ["ca.crt"]), (True, ["ca.crt", "tls.crt", "tls.key"])])
def test_a_bus_behind_tls(client: bool, keys: list[str]) -> None:
    manifests = rendered({"nats": {"url": "tls://nats:4222", "tls": {"secret": "bus-tls", "client": client}}})
    for called in ("Deployment/sandbox-default", "Deployment/gateway", "Job/cadre-provision-*"):
        variables = env_of(manifests, called)
        assert variables["CADRE_NATS_TLS_CA"] == "/var/run/secrets/cadre/nats-tls/ca.crt"
        assert ("CADRE_NATS_TLS_KEY" in variables) == client
        [volume] = [v["secret"] for v in pod_of(manifests, called)["volumes"] if v["name"] == "nats-tls"]
        assert [one["key"] for one in volume["items"]] == keys
    assert faults(manifests, [*GIVEN, "Secret/bus-tls"]) == []
    policy = pick(manifests, "NetworkPolicy/gateway")["spec"]["egress"]
    assert yaml.safe_dump(policy).count("port: 4222") == 1


def test_without_tls_nothing_of_it_is_there() -> None:
    assert "nats-tls" not in yaml.safe_dump_all(rendered())

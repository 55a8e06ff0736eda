"""Several teams in one namespace, and several revisions of one agent."""

import pytest

from cadre.deploy.k8s.components import Component
from cadre.deploy.k8s.render import render
from cadre.deploy.k8s.values import read_values
from cadre.deploy.team_components import components_of
from cadre.deploy.team_file import read_team
from cadre.errors import SpecError
from unit.k8s.faults import faults
from unit.k8s.shipped import ALL, GIVEN, TEAM, pick, pod_of, rendered

SECOND = {"instance": "second", "nats": {"prefix": "second"}}


def test_teams_that_share_a_namespace_have_no_name_in_common() -> None:
    named = [{(m["kind"], m["metadata"]["name"]) for m in rendered(*layers)} for layers in ([], [SECOND])]
    assert named[0] & named[1] == {("Namespace", "cadre")}
    second = rendered(SECOND)
    assert faults([*rendered(), *second[1:]], GIVEN) == []
    volumes = pod_of(second, "Deployment/second-agent-manager")["volumes"]
    assert {"secretName": "cadre-nats-agent-manager", "defaultMode": 0o440} in [v.get("secret") for v in volumes]
    with pytest.raises(SpecError, match="instance"):
        read_values({"instance": "A_b"})


def test_a_second_revision_stands_beside_the_first() -> None:
    values = read_values(ALL)
    components = components_of(read_team(TEAM), values)
    first = render(components, values, "agent/checker")
    second = render(components, values, "agent/checker", "next")
    assert [*second] == ["agent-checker", "agent-checker-next"]
    [scaled] = second.pop("agent-checker")
    both = [one for files in (first, second) for many in files.values() for one in many]
    names = [(one["kind"], one["metadata"]["name"]) for one in both]
    assert len(names) == len(set(names)), "no object is of both"
    kinds = [one["kind"] for one in second["agent-checker-next"]]
    assert sorted(kinds) == [
        "ConfigMap",
        "Deployment",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "ScaledObject",
        "ServiceAccount",
    ]
    older, newer = (pick(both, f"Deployment/{name}") for name in ("agent-checker", "agent-checker-next"))
    assert older["spec"]["selector"] != newer["spec"]["selector"]
    assert "replicas" not in newer["spec"]
    assert newer["metadata"]["labels"]["cadre.dev/agent"] == "checker"
    keys = [
        [volume for volume in one["spec"]["template"]["spec"]["volumes"] if volume["name"] == "nats"]
        for one in (older, newer)
    ]
    assert keys[0] == keys[1] != [], "they are one NATS user"
    # While it is there each is scaled by what the gateway says is its own; no queue is known to be beforehand.
    known = [one for one in rendered() if (one["kind"], one["metadata"]["name"]) != ("ScaledObject", "agent-checker")]
    assert len(known) == len(rendered()) - 1, "it takes the place of what scaled the first"
    assert faults([*known, scaled, *second["agent-checker-next"]], GIVEN) == []
    newer_scaled = pick(both, "ScaledObject/agent-checker-next")
    address = "http://gateway.cadre.svc.cluster.local/v1/agents/checker/lag"
    for one, url in ((scaled, address), (newer_scaled, f"{address}?beside=checker-next")):
        spec = one["spec"]
        assert spec["scaleTargetRef"] == {"name": one["metadata"]["name"]}
        assert spec["triggers"] == [
            {
                "type": "metrics-api",
                "metadata": {
                    "url": url,
                    "valueLocation": "lag",
                    "targetValue": "64",
                    "activationTargetValue": "0",
                },
            }
        ]
    [variable] = [
        one for one in newer["spec"]["template"]["spec"]["containers"][0]["env"] if one["name"] == "CADRE_BESIDE"
    ]
    assert variable["value"] == "checker-next", "what its replicas tell, so that the gateway knows what is whose"


def test_a_revision_keeps_a_replica_for_without_any_it_gets_no_runs() -> None:
    values = read_values(ALL, {"workloads": {"agent/checker": {"scale": {"min": 0}}}})
    components = components_of(read_team(TEAM), values)
    found = [one for many in render(components, values, "agent/checker", "next").values() for one in many]
    counts = {m["metadata"]["name"]: m["spec"]["minReplicaCount"] for m in found if m["kind"] == "ScaledObject"}
    assert counts == {"agent-checker": 1, "agent-checker-next": 1}
    assert not [m for m in found if m["kind"] == "Job"], "the card at rest is the first's"
    [alone] = [m for m in render(components, values, "agent/checker")["agent-checker"] if m["kind"] == "ScaledObject"]
    assert alone["spec"]["minReplicaCount"] == 0


def test_without_keda_a_second_revision_changes_nothing_of_the_first() -> None:
    values = read_values(ALL, {"keda": False, "workloads": {"agent/checker": {"replicas": 3}}})
    second = render(components_of(read_team(TEAM), values), values, "agent/checker", "next")
    assert [*second] == ["agent-checker-next"]
    assert pick(second["agent-checker-next"], "Deployment/agent-checker-next")["spec"]["replicas"] == 3


@pytest.mark.parametrize(
    ("only", "beside", "told"),
    [
        ("gateway", "next", "revisions"),
        ("agent/check", "er", "agent-check-er"),
        ("agent/checker", "next", ""),
    ],
)
def test_a_second_revision_that_cannot_be(only: str, beside: str, told: str) -> None:
    components = [
        Component("gateway", "", []),
        Component("agent", "check", []),
        Component("agent", "check-er", []),
        Component("agent", "checker", []),
    ]
    if not told:
        assert render(components, read_values(), only, beside)
        return
    with pytest.raises(SpecError, match=told):
        render(components, read_values(), only, beside)

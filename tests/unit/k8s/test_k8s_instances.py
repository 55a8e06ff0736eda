"""Several teams in one namespace, and several revisions of one agent."""

import pytest

from cadre.deploy.k8s.components import Component
from cadre.deploy.k8s.render import render
from cadre.deploy.k8s.values import read_values
from cadre.errors import SpecError
from cadre.local.team.team_components import components_of
from cadre.local.team.team_file import read_team
from unit.k8s.faults import faults
from unit.k8s.shipped import ALL, GIVEN, TEAM, pick, pod_of, rendered

SECOND = {"instance": "second", "nats": {"prefix": "second"}}


def test_teams_that_share_a_namespace_have_no_name_in_common() -> None:
    named = [{(m["kind"], m["metadata"]["name"]) for m in rendered(*layers)} for layers in ([], [SECOND])]
    assert named[0] & named[1] == {("Namespace", "cadre")}
    second = rendered(SECOND)
    assert faults([*rendered(), *second[1:]], GIVEN) == []
    volumes = pod_of(second, "Deployment/second-agent-manager")["volumes"]
    assert {"secretName": "cadre-nats-agent-manager", "defaultMode": 0o440} in [
        v.get("secret") for v in volumes
    ]
    with pytest.raises(SpecError, match="instance"):
        read_values({"instance": "A_b"})


def test_a_second_revision_stands_beside_the_first() -> None:
    values = read_values(ALL)
    components = components_of(read_team(TEAM), values)
    first = render(components, values, "agent/checker")
    second = render(components, values, "agent/checker", "next")
    assert list(second) == ["agent-checker-next"]
    both = [one for files in (first, second) for many in files.values() for one in many]
    names = [(one["kind"], one["metadata"]["name"]) for one in both]
    assert len(names) == len(set(names)), "no object is of both"
    kinds = [one["kind"] for one in second["agent-checker-next"]]
    assert sorted(kinds) == [
        "ConfigMap",
        "Deployment",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "ServiceAccount",
    ]
    older, newer = (pick(both, f"Deployment/{name}") for name in ("agent-checker", "agent-checker-next"))
    assert older["spec"]["selector"] != newer["spec"]["selector"]
    assert newer["spec"]["replicas"] == 1, "no queue is its own before the rollout: nothing scales it"
    assert newer["metadata"]["labels"]["cadre.dev/agent"] == "checker"
    keys = [
        [volume for volume in one["spec"]["template"]["spec"]["volumes"] if volume["name"] == "nats"]
        for one in (older, newer)
    ]
    assert keys[0] == keys[1] != [], "they are one NATS user"
    assert faults([*rendered(), *second["agent-checker-next"]], GIVEN) == []


@pytest.mark.parametrize(
    ("only", "beside", "told"),
    [
        ("gateway", "next", "agents alone"),
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

"""Several teams in one namespace."""

import pytest

from cadre.deploy.k8s.values import read_values
from cadre.errors import SpecError
from unit.k8s.faults import faults
from unit.k8s.shipped import GIVEN, pod_of, rendered

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

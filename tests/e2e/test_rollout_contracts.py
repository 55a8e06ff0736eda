"""A revision that its managers could not call is named before it gets new runs, and gets none unless that is said."""

from pathlib import Path
from typing import Any

from harness.patience import eventually
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "typed"
PATH = "/v1/agents/clerk/rollout"


def revisions(gateway: Gateway, count: int) -> list[str]:
    """The live revisions of the clerk, once there are so many, the one with the oldest replica first."""
    found: list[str] = []

    def look() -> bool:
        agents = gateway.request("GET", "/v1/agents").json()["agents"]
        replicas = [replica for one in agents if one["name"] == "clerk" for replica in one["replicas"]]
        ordered = sorted(replicas, key=lambda replica: float(replica["started_at"]))
        found[:] = dict.fromkeys(replica["revision"] for replica in ordered)
        return len(found) == count

    eventually(look, what=f"{count} revisions are live", state=lambda: found)
    return found


def change(gateway: Gateway, **what: Any) -> tuple[int, dict[str, Any]]:
    answer = gateway.request("POST", PATH, json=what)
    return answer.status_code, answer.json()


def test_a_revision_that_its_manager_could_not_call_gets_no_runs(tmp_path: Path) -> None:
    written = (TEAM / "clerk.yaml").read_text()
    with Stack(tmp_path) as stack:
        for file in ("clerk", "planner"):
            stack.agent(TEAM / f"{file}.yaml", start=False)
        stack.tools(TEAM / "tools.py", start=False)
        gateway = stack.open_gateway(2)
        (first,) = revisions(gateway, 1)
        assert gateway.request("GET", PATH).json()["warnings"] == []
        assert change(gateway, to=first, weight=100)[0] == 200
        longer = tmp_path / "longer.yaml"
        longer.write_text(written.replace("required: [file, nights]", "required: [file, nights, guest]"))
        other = tmp_path / "other.yaml"
        other.write_text(written.replace("nights: {type: integer, minimum: 1}", "nights: {type: integer}"))
        stack.agent(longer, name="clerk-longer")
        _, second = revisions(gateway, 2)
        stack.agent(other, name="clerk-other")
        (third,) = set(revisions(gateway, 3)) - {first, second}
        (line,) = [one for one in gateway.request("GET", PATH).json()["warnings"] if "spec.plan" in one]
        assert all(word in line for word in (second, "planner", "spec.plan.steps[0].args", "guest"))
        status, problem = change(gateway, to=second, weight=10)
        assert (status, problem["code"]) == (409, "contract-broken")
        assert "spec.plan.steps[0].args" in problem["detail"]
        weights = {one["revision"]: one["weight"] for one in gateway.request("GET", PATH).json()["revisions"]}
        assert not weights[second]
        assert change(gateway, to=third, weight=10)[0] == 200
        assert change(gateway, to=second, weight=10, anyway=True)[0] == 200

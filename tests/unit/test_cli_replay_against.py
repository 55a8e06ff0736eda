"""`cadre replay --against`: kept runs, decided by another revision of their agent or of a member of it."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cadre.errors import ExitCode
from cadre.journal.arrivals import Toolset
from cadre.protocol.cards import AgentCard, ToolCard
from cadre.spec.agent import AgentSpec
from cadre.testing import SimulatedRun, call, report, result
from harness.kept_file import write_kept
from harness.texts import holds
from unit.played_gateway import Gateway, cadre, playing

ORDER = ToolCard(
    name="order",
    description="Order an article.",
    input_schema={"type": "object", "properties": {"article": {"type": "string"}}, "required": ["article"]},
)
CLERK = AgentSpec(name="clerk", description="Orders.", tools=["order"])
CAREFUL = msgspec.structs.replace(CLERK, approvals={"order": "always"})
BOSS = AgentSpec(name="boss", description="Has things ordered.", team=["clerk"])


def kept(folder: Path, *, run: str, delegates: bool) -> bytes:
    """A run of the boss that has ended, with one of the clerk below it or without."""
    boss = SimulatedRun(BOSS, Toolset(members={"clerk": AgentCard(name="clerk", description="Orders.")}), run=run)
    boss.begin("Have a lamp ordered.")
    clerk = SimulatedRun(CLERK, Toolset({"order": ORDER}), run=f"{run}_1_0")
    if delegates:
        boss.say(call("clerk", task="Order a lamp."))
        clerk.begin("Order a lamp.")
        clerk.say(call("order", article="lamp"))
        clerk.arrive(result(f"{run}_1_0_1_0", "ordered", tool="order"))
        clerk.say(call("final_answer", answer="ordered"))
        boss.arrive(report(f"{run}_1_0", "ordered"))
    boss.say(call("final_answer", answer="done"))
    file = folder / f"{run}.cadre"
    write_kept(boss, file, *([clerk] if delegates else []))
    return file.read_bytes()


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Gateway]:
    """Two runs of the boss, one of them with the clerk, of which a careful revision is live."""
    spec = msgspec.json.encode(CAREFUL)
    blob = hashlib.sha256(spec).hexdigest()
    with playing(monkeypatch) as played:
        played.answer("GET /v1/tools", {"tools": [msgspec.to_builtins(ORDER)]})
        replicas = [{"revision": "81c0ffee0000", "spec": f"blob:{blob}", "prompts": ""}]
        played.answer("GET /v1/agents", {"agents": [{"name": "clerk", "replicas": replicas}]})
        played.answers[f"GET /v1/blobs/{blob}"] = (200, "application/octet-stream", spec)
        for run, delegates in (("r1", True), ("r2", False)):
            content = kept(tmp_path, run=run, delegates=delegates)
            played.answers[f"GET /v1/runs/{run}/export"] = (200, "application/gzip", content)
        runs = [{"id": run, "ended_at": 1.0} for run in ("r1", "r2")]
        played.answer("GET /v1/runs", {"runs": [], "next": None})
        played.answer("GET /v1/runs?agent=boss", {"runs": runs, "next": None})
        yield played


def test_a_revision_of_a_member_is_held_against_the_runs_of_its_manager(gateway: Gateway) -> None:
    done = cadre("replay", "--agent", "boss", "--against", "clerk=81c0", "-o", "json")
    assert done.exit_code == 1, done.output
    (found,) = json.loads(done.stdout)  # the clerk took no part in the other run
    assert (found["id"], found["agents"]) == ("r1", ["boss", "clerk"])
    (other,) = found["divergences"]
    assert (other["run"], other["lines"][1]) == ("r1_1_0", "now       model.answered, approval.requested")


def test_a_member_that_took_no_part_is_told(gateway: Gateway) -> None:
    runs = [{"id": "r2", "ended_at": 1.0}]
    gateway.answer("GET /v1/runs?agent=boss", {"runs": runs, "next": None})
    done = cadre("replay", "--agent", "boss", "--against", "clerk=81c0")
    assert (done.exit_code, done.stdout) == (4, "")
    assert "(1): `--last N`" in done.stderr


@pytest.mark.parametrize("against", ["clerk=", "clerk=82", "waiter=81c0"])
def test_a_member_of_whom_nothing_such_is_live(gateway: Gateway, against: str) -> None:
    done = cadre("replay", "--agent", "boss", "--against", against)
    assert done.exit_code == ExitCode.NOT_FOUND, done.output
    assert against.partition("=")[0] in done.stderr


def test_an_agent_without_runs_of_its_own_is_told_where_to_look(gateway: Gateway) -> None:
    done = cadre("replay", "--agent", "clerk", "--against", "81c0")
    assert done.exit_code == ExitCode.NOT_FOUND
    assert holds(done.stderr, "clerk", "`cadre runs`")

"""Two revisions of an agent share its runs by weight: each run ends with the one that it began with, come what may.

Every service has its own NATS user here, as in a deployment: none may do more for a rollout than its permissions.
"""

import asyncio
import itertools
import json
import random
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cadre.adapters.nats.streams import jetstream
from cadre.protocol.nats_users import team_roles
from cadre.protocol.rollout import Rollout, Share
from cadre.protocol.topology import run_id_of
from cadre.service.platform import Platform
from harness.command import Commands, commands_of
from harness.patience import eventually
from harness.secured_stack import SecuredStack
from harness.stack import Gateway, Service
from harness.texts import holds

HERE = Path(__file__).parent / "sharing"
TOOLS = Path(__file__).parent / "held" / "tools.py"
KILLS = 6
PATH = "/v1/agents/clerk/rollout"
ROLES = team_roles(
    ["clerk"], [("tools", ("note", "wipe", "refund"))], [], memory=False, calls={"clerk": ("note", "wipe")}
)


def change(gateway: Gateway, status: int = 200, **what: Any) -> dict[str, Any]:
    answer = gateway.request("POST", PATH, json=what)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


def shown(gateway: Gateway) -> dict[str, Any]:
    found: dict[str, Any] = gateway.request("GET", PATH).json()
    return found


def revisions(gateway: Gateway, count: int) -> list[str]:
    """The live revisions, once there are so many, the one with the oldest replica first."""
    found: list[str] = []

    def look() -> bool:
        agents = gateway.request("GET", "/v1/agents").json()["agents"]
        replicas = sorted((r for a in agents for r in a["replicas"]), key=lambda r: float(r["started_at"]))
        found[:] = dict.fromkeys(r["revision"] for r in replicas)
        return len(found) == count

    eventually(look, what=f"{count} revisions are live", state=lambda: found)
    return found


def consumers(stack: SecuredStack) -> set[str]:
    """Names of all durable consumers of inboxes."""

    async def ask(platform: Platform) -> set[str]:
        streams = map(platform.topology.stream, range(platform.topology.shards))
        return {str(one["name"]) for stream in streams for one in await jetstream.consumers(platform.nc, stream)}

    async def asked() -> set[str]:
        async with stack.platform(key=stack.key("operator")) as platform:
            return {name for name in await ask(platform) if name.startswith("agent-")}

    return asyncio.run(asked())


def keys_for(shares: Rollout, revision: str) -> Iterator[str]:
    """Idempotency-Keys whose runs begin with the revision while all are live."""
    live = {share.revision for share in shares.shares}
    for number in itertools.count():
        chosen = shares.choose(run_id_of("clerk", "", f"key {number}"), live)
        if chosen is not None and chosen.revision == revision:
            yield f"key {number}"


def killed_in_turn(services: list[Service], over: threading.Event, chance: random.Random) -> None:
    for service in itertools.islice(itertools.cycle(services), KILLS):
        if not over.wait(chance.uniform(0.1, 1.0)):
            service.kill()
            service.start()


@pytest.mark.timeout(600)
def test_a_rollout_from_its_beginning_to_its_end(tmp_path: Path) -> None:
    with SecuredStack(tmp_path, ROLES) as stack:
        stack.model(HERE / "script.yaml")
        gateway = Gateway(stack.add_as("gateway", "cadre_gateway"))
        tools = stack.add_as("tools-tools", "cadre_tools", TOOLS)
        older = stack.add_as("agent-clerk", "cadre_agent", HERE / "first.yaml")
        stack.start_all()
        gateway.wait_offered(1)
        (first,) = revisions(gateway, 1)
        assert not shown(gateway)["active"]
        assert consumers(stack) == {"agent-clerk"}

        # All others are held back before there are any.
        change(gateway, to=first, weight=100)
        newer = stack.add_as("agent-clerk", "cadre_agent", HERE / "second.yaml", name="second")
        newer.start()
        _, second = revisions(gateway, 2)
        assert {gateway.answer("clerk", "say") for _ in range(6)} == {"first"}
        assert str(second) in shown(gateway)["warnings"][0]

        view = change(gateway, to=second[:6], weight=10)
        assert {one["revision"]: one["weight"] for one in view["revisions"]} == {first: 90, second: 10}
        refused = change(gateway, 409, to=second, weight=50, version=view["version"] - 1)
        assert (refused["code"], refused["version"]) == ("stale-version", view["version"])

        _share_a_hundred_runs(gateway, [older, newer], tmp_path)
        revisions(gateway, 2)

        _keep_to_a_revision(gateway, newer, first, second, tmp_path)
        # The revision that has no runs any more is drained meanwhile.
        _decide_by_others(commands_of(stack, tmp_path), first, tmp_path)
        _find_other_schemas(stack, gateway, tools, first, tmp_path)
        _end(stack, gateway, newer, first)
        assert not stack.refusals()


def _share_a_hundred_runs(gateway: Gateway, agents: list[Service], folder: Path) -> None:
    """While replicas of both revisions are killed."""
    over = threading.Event()
    killing = threading.Thread(target=killed_in_turn, args=(agents, over, random.Random(7)))
    killing.start()
    marks = [folder / f"mark-{n}" for n in range(100)]
    try:
        with ThreadPoolExecutor(8) as callers:
            runs = dict(
                zip(
                    callers.map(lambda mark: gateway.submit("clerk", f"note {mark} "), marks),
                    marks,
                    strict=True,
                )
            )
        ends = {run: gateway.finished(run, within=240) for run in runs}
    finally:
        over.set()
        killing.join()
    assert {end["state"] for end in ends.values()} == {"success"}
    assert {file.read_text() for file in runs.values()} == {"note once\n"}, "an effect happened twice"
    asked = Counter((end["revision"], end["output"]) for end in ends.values())
    assert len(asked) == 2, f"some run was begun by one revision and answered by another: {asked}"
    # About ten; while one of both was away, some went to the other.
    assert 1 <= min(asked.values()) <= 60, asked


def _keep_to_a_revision(gateway: Gateway, newer: Service, first: str, second: str, folder: Path) -> None:
    """A run that waits for a person stays with its revision, through a rollback and while that is away."""
    shares = Rollout(
        agent="clerk",
        shares=[Share(revision=first, slot=1, weight=90), Share(revision=second, slot=2, weight=10)],
    )
    keys = keys_for(shares, second)

    def waiting(name: str) -> tuple[str, str]:
        wanted = {"agent": "clerk", "task": f"wipe {folder / name} "}
        headers = {"Idempotency-Key": next(keys)}
        run = gateway.request("POST", "/v1/runs", json=wanted, headers=headers).json()["id"]
        return run, gateway.wait_for(run, "approval.requested")["event"]["call"]

    def approve(call: str) -> None:
        decided = gateway.request("POST", f"/v1/approvals/{call}", json={"verdict": "approved"})
        assert decided.status_code < 300, decided.text

    names = ("books", "papers", "letters")
    (held, call), (adopted, other_call), (returned, last_call) = map(waiting, names)
    assert change(gateway, rollback=True)["revisions"][1]["weight"] == 0
    assert newer.terminate() == 0
    revisions(gateway, 1)
    approve(call)
    eventually(
        lambda: gateway.run(held)["waiting_for"] == f"revision {second} of agent clerk",
        what="the run waits for its revision",
        state=lambda: gateway.run(held),
    )
    assert f"--adopt {second} --by REV" in " ".join(shown(gateway)["warnings"])
    newer.start()
    assert gateway.succeeded(held) == "second"
    # Another revision goes on with a run, by the spec that it began with; then its runs are given back.
    newer.kill()
    assert change(gateway, adopt=second, by=first)["revisions"][1]["adopted_by"] == first
    approve(other_call)
    assert gateway.succeeded(adopted) == "second"
    newer.start()
    revisions(gateway, 2)
    assert not change(gateway, adopt=second, by=second)["revisions"][1]["adopted_by"]
    approve(last_call)
    assert gateway.succeeded(returned) == "second"
    assert [(folder / name).read_text() for name in names] == ["wipe\n"] * 3


def _decide_by_others(cadre: Commands, first: str, folder: Path) -> None:
    """Replay kept runs: by a live revision, and by a file that asks for a person's word."""
    same = cadre("replay", "--agent", "clerk", "--last", 6, "--against", first[:6])
    assert same.returncode == 0, same.stdout + same.stderr
    assert "6 kept, 6 decided as before, 0 not" in same.stdout
    careful = folder / "careful.yaml"
    careful.write_text((HERE / "second.yaml").read_text() + "  approvals: {note: always}\n")
    other = cadre("replay", "--agent", "clerk", "--last", 6, "--against", careful, "-o", "json")
    assert other.returncode == 1, other.stdout + other.stderr
    told = json.loads(other.stdout)
    assert [one["is_as_it_was"] for one in told if one["divergences"]] == [False] * 3, told
    nobody = cadre("replay", "--agent", "clerk", "--against", "ffff")
    assert "'ffff'" in nobody.stderr
    # What the model says to the spec and the prompts of a live revision, next to what it said then.
    kept = folder / "kept"
    assert cadre("runs", "export", "--agent", "clerk", "--last", 6, "-o", kept).returncode == 0
    (folder / "team.yaml").write_text(
        "apiVersion: cadre.dev/v1\nkind: Team\nmetadata: {name: kept}\n"
        f"spec: {{agents: [{HERE / 'second.yaml'}], tools: [{TOOLS}]}}\n"
    )
    tried = cadre("eval", kept, "--team", folder / "team.yaml", "--revision", f"clerk={first[:6]}", "-o", "json")
    trials = [one["trial"] for one in json.loads(tried.stdout)]
    assert [one["now"]["output"] for one in trials] == ["first"] * 6, tried.stderr
    assert [one["same_answer"] for one in trials] == [one["before"]["output"] == "first" for one in trials]
    assert not all(one["same_answer"] for one in trials), "those that were adopted are the other revision's"
    unknown = cadre("eval", kept, "--team", folder / "team.yaml", "--revision", "clerk=ffff")
    assert (unknown.returncode, "'ffff'" in unknown.stderr) == (4, True)


def _find_other_schemas(stack: SecuredStack, gateway: Gateway, tools: Service, first: str, folder: Path) -> None:
    """A tool that takes other arguments is no other revision: that it does is seen, and whose calls it would refuse."""

    def schemas() -> str:
        found = {one["revision"]: str(one["schemas"]) for one in shown(gateway)["revisions"]}
        return found[first]

    run = str(gateway.submit("clerk", f"note {folder / 'book'} "))
    gateway.succeeded(run)
    then = schemas()
    assert gateway.run(run)["schemas"] == then != ""
    stricter = folder / "stricter.py"
    stricter.write_text(TOOLS.read_text().replace("text: str) -> str", "text: int) -> str"))
    assert tools.terminate() == 0
    stack.add_as("tools-tools", "cadre_tools", stricter, name="stricter").start()
    gateway.wait_offered(1)
    eventually(lambda: schemas() not in ("", then), what="the tools tell other schemas", state=schemas)
    cadre = commands_of(stack, folder)
    assert f"tools' schemas {then}" in cadre("show", run).stdout
    assert schemas() in cadre("rollout", "clerk").stdout
    told = cadre("replay", run, "--against", first[:6], "-o", "json")
    assert told.returncode == 1, told.stdout + told.stderr
    (found,) = json.loads(told.stdout)
    (changed,) = found["tools"]
    assert (changed["tool"], changed["change"], changed["calls"]) == ("note", "changed", 1)
    (why,) = changed["refused"].values()
    assert holds(why, "argument text", '"once"', '"integer"')
    shown_to_people = cadre("replay", run, "--against", first[:6])
    assert holds(shown_to_people.stdout, "note", why)


def _end(stack: SecuredStack, gateway: Gateway, newer: Service, first: str) -> None:
    """The revision has no runs any more and goes; then the rollout may end, and nothing of it is left."""
    eventually(
        lambda: [one["revision"] for one in shown(gateway)["revisions"] if one["weight"] is not None] == [first],
        what="the drained revision is gone",
        state=lambda: shown(gateway),
    )
    eventually(lambda: consumers(stack) == {"agent-clerk", "agent-clerk~1"}, what="its queue is removed")
    (other,) = {one["revision"] for one in shown(gateway)["revisions"]} - {first}
    assert other in change(gateway, 422, end=True)["detail"]
    newer.terminate()
    revisions(gateway, 1)
    change(gateway, end=True)
    eventually(lambda: consumers(stack) == {"agent-clerk"}, what="no queue of a revision is left")
    assert not shown(gateway)["active"]
    assert gateway.answer("clerk", "say") == "first"

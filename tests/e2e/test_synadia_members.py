"""Agents on NATS that speak Synadia's protocol as members of teams: their work, questions, ends, kills."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cadre.adapters.nats.streams import jetstream
from harness.patience import eventually
from harness.stack import Gateway, Service, Stack

HERE = Path(__file__).parent / "synadia"
FILE = """
apiVersion: cadre.dev/v1
kind: RemoteAgent
metadata: {{name: {name}}}
spec:
  description: Does what it is told.
  nats: {{agent: stock, owner: test, session: {session}}}
  poll: 1s
  absence: 6s
  {more}
"""


class Deployment(NamedTuple):
    """A manager, agents of Synadia's own host, and who stands for them."""

    stack: Stack
    gateway: Gateway
    folder: Path

    def deeds(self) -> list[str]:
        file = self.folder / "deeds"
        return file.read_text().splitlines() if file.exists() else []

    def await_deed(self, deed: str) -> None:
        eventually(lambda: deed in self.deeds(), what=deed, state=self.stack.logs)

    def agent(self, session: str, *options: str) -> Service:
        """Starts an agent of Synadia's own host."""
        service = self.stack.add(f"agent-{session}", HERE / "agent.py", self.folder, session, *options, start=False)
        service.start(wait=False)
        return service

    def member(self, name: str, session: str, more: str = "", *, start: bool = True) -> Service:
        """Starts who stands for one in the team."""
        file = self.folder / f"{name}.yaml"
        file.write_text(FILE.format(name=name, session=session, more=more))
        return self.stack.add(name, "cadre.cli.main", "member", file, start=start)

    def decide(self, run: str, verdict: str, **word: str) -> dict[str, Any]:
        """Decides what a run asks a person, and returns that."""
        asked: dict[str, Any] = self.gateway.wait_for(run, "approval.requested")["event"]
        answer = self.gateway.request("POST", f"/v1/approvals/{asked['call']}", json={"verdict": verdict, **word})
        assert answer.status_code in (200, 202), answer.text
        return asked


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("synadia")
    with Stack(folder) as stack:
        stack.model(HERE / "script.yaml")
        stack.agent(HERE / "boss.yaml", start=False)
        deployment = Deployment(stack, stack.gateway(start=False), folder)
        deployment.agent("work")
        deployment.member("stock", "work", start=False)
        deployment.member("careless", "work", "idempotent: true", start=False)
        stack.start_all()
        deployment.gateway.wait_offered(3)
        yield deployment


def test_a_manager_has_it_do_a_task_and_its_work_is_told(deployment: Deployment) -> None:
    gateway = deployment.gateway
    run = gateway.submit("boss", "have stock: think of rocks\nsay first, \nsay second")
    assert "first, second" in gateway.succeeded(run)
    worked = [data["event"] for name, data in gateway.events(run) if name == "remote.progressed"]
    told = [(one["type"], one["text"]) for event in worked for one in event["activity"]]
    assert ("thought", "of rocks") in told
    assert "".join(text for kind, text in told if kind == "message") == "first, second"


def test_files_go_both_ways(deployment: Deployment) -> None:
    text, file = deployment.gateway.answer("stock", "attach table.csv")
    assert (text, file["$file"]["name"], file["$file"]["size"]) == ("see there", "table.csv", 8)
    said = deployment.gateway.answer("stock", "echo", inputs={"case": "0815", "book": file})
    assert '{"case":"0815","book":"table.csv"}' in said
    assert "files: ['table.csv']" in said


def test_a_question_is_a_persons_to_answer(deployment: Deployment) -> None:
    for verdict, word, told in (
        ("approved", {}, "told: approve"),
        ("rejected", {"feedback": "not today"}, "told: reject: not today"),
        ("approved", {"feedback": "the second"}, "told: the second"),
    ):
        run = deployment.gateway.submit("stock", "ask Delete all?")
        asked = deployment.decide(run, verdict, **word)
        assert asked["reason"] == "Delete all?"
        assert deployment.gateway.succeeded(run) == told


def test_errors_end_the_run_in_its_words(deployment: Deployment) -> None:
    for task, words in (("fail secretly", "handler error (500)"), ("refuse 403", "not you (403)")):
        ended = deployment.gateway.finished(deployment.gateway.submit("stock", task))
        assert (ended["state"], ended["error"]["type"]) == ("error", "RemoteAgentFailed")
        assert words in ended["error"]["message"]


def test_one_that_is_busy_is_asked_later(deployment: Deployment) -> None:
    run = deployment.gateway.submit("stock", "busy free\nsay free now")
    assert "busy" in deployment.gateway.wait_for(run, "remote.unreachable")["event"]["reason"]
    (deployment.folder / "free").touch()
    assert deployment.gateway.succeeded(run) == "free now"
    assert deployment.deeds().count("say free now") == 1


async def test_what_was_said_to_it_is_erased_with_the_run(deployment: Deployment) -> None:
    gateway = deployment.gateway
    kept = gateway.submit("stock", "say of no secret")
    run = gateway.submit("boss", "have stock: say of the secret of Basalt")
    assert "Basalt" in gateway.succeeded(run)
    assert gateway.succeeded(kept) == "of no secret"
    async with deployment.stack.platform() as platform:
        before = [held async for held in jetstream.messages(platform.nc, "CADRE-REMOTE", "cadre.remote.>")]
        assert any(b"Basalt" in held.data for held in before)
        assert gateway.request("DELETE", f"/v1/runs/{run}").status_code == 200
        left = [held async for held in jetstream.messages(platform.nc, "CADRE-REMOTE", "cadre.remote.>")]
    assert not [held.subject for held in left if b"Basalt" in held.data or run in held.subject]
    assert [held.seq for held in before if run not in held.subject] == [held.seq for held in left]


@pytest.mark.parametrize("killed", ["stock", "nats"])
def test_whoever_dies_its_answer_is_found_and_nothing_is_asked_twice(deployment: Deployment, killed: str) -> None:
    run = deployment.gateway.submit("boss", f"have stock: say begun, \nwait go-{killed}\nsay gone")
    deployment.await_deed(f"wait go-{killed}")
    # What the agent says travels by core NATS: a server that is killed before it has that never had it.
    deployment.gateway.wait_for(run, "remote.progressed")
    if killed == "nats":
        deployment.stack.nats.kill()
        deployment.stack.nats.start()
    else:
        deployment.stack.services[killed].kill()
        (deployment.folder / f"go-{killed}").touch()
        deployment.await_deed("say gone")
        deployment.stack.services[killed].start()
    (deployment.folder / f"go-{killed}").touch()
    assert "begun, gone" in deployment.gateway.succeeded(run)
    assert deployment.deeds().count(f"wait go-{killed}") == 1


def test_a_question_outlives_who_passes_it_on(deployment: Deployment) -> None:
    run = deployment.gateway.submit("stock", "ask Still there?")
    deployment.gateway.wait_for(run, "approval.requested")
    deployment.stack.services["stock"].kill()
    deployment.decide(run, "approved", feedback="yes")
    deployment.stack.services["stock"].start()
    assert deployment.gateway.succeeded(run) == "told: yes"


def test_an_agent_that_dies_leaves_an_unknown_outcome_unless_it_may_be_asked_again(
    deployment: Deployment,
) -> None:
    for name, mark in (("stock", "tomb-1"), ("careless", "tomb-2")):
        run = deployment.gateway.submit(name, f"say begun\ndie {mark}\nsay alive")
        deployment.await_deed(f"die {mark}")
        deployment.stack.services["agent-work"].process.wait()  # type: ignore[union-attr]
        deployment.stack.services["agent-work"].start(wait=False)
        ended = deployment.gateway.finished(run)
        if name == "careless":
            assert (ended["state"], ended["output"]) == ("success", "begunalive")
            assert deployment.deeds().count(f"die {mark}") == 2
        else:
            assert (ended["state"], ended["error"]["type"]) == ("error", "Interrupted")
            assert "outcome unknown" in ended["error"]["message"]
            assert deployment.deeds().count(f"die {mark}") == 1, "it was not asked again"


def test_who_is_not_there_is_waited_for_and_named(deployment: Deployment) -> None:
    deployment.stack.services.pop("late", None)
    deployment.stack.add("late", "cadre.cli.main", "member", "--synadia", "stock/test/late", "--name", "late")
    run = deployment.gateway.submit("late", "say here")
    lost = deployment.gateway.wait_for(run, "remote.unreachable")["event"]["reason"]
    assert "no agent stock/test/late answers at NATS" in lost
    assert "stock/test/work" in lost
    deployment.agent("late", "files=no")
    assert deployment.gateway.succeeded(run) == "here"
    file = {"$file": {"ref": "blob:" + "0" * 64, "media_type": "text/csv", "name": "x.csv", "size": 1}}
    ended = deployment.gateway.finished(deployment.gateway.submit("late", "echo", inputs={"book": file}))
    assert ended["state"] == "error"

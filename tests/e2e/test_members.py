"""Programs that speak the Agent Client Protocol as members of teams: their work, permissions, ends, kills."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from harness.patience import eventually
from harness.stack import Gateway, Service, Stack

HERE = Path(__file__).parent / "member"
PROGRAM = HERE / "program.py"
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
    "AAAADUlEQVR42mNkYPhfz0AEYBxVSF+FABJADveWkH6oAAAAAElFTkSuQmCC"
)
FILE = """
apiVersion: cadre.dev/v1
kind: RemoteAgent
metadata: {{name: {name}}}
spec:
  description: Writes.
  command: {command}
  workspace: {name}
  poll: 1s
"""


class Deployment(NamedTuple):
    """A manager, two members that differ in whether they can open a session again, and the gateway."""

    stack: Stack
    gateway: Gateway
    folder: Path

    def member(self, name: str) -> Service:
        return self.stack.services[name]

    def deeds(self, name: str) -> list[str]:
        file = self.folder / name / "deeds"
        return file.read_text().splitlines() if file.exists() else []

    def await_deed(self, name: str, deed: str) -> None:
        eventually(lambda: deed in self.deeds(name), what=f"{name}: {deed}", state=self.stack.logs)

    def question(self, run: str) -> dict[str, Any]:
        """Return what a run of a member asks a person."""
        held: dict[str, Any] = self.gateway.wait_for(run, "approval.requested")["event"]
        return held

    def decide(self, run: str, verdict: str, **word: str) -> None:
        call = self.question(run)["call"]
        answer = self.gateway.request("POST", f"/v1/approvals/{call}", json={"verdict": verdict, **word})
        assert answer.status_code in (200, 202), answer.text

    def told(self, run: str) -> list[dict[str, Any]]:
        """The member's activity, as the run's events tell it."""
        events = [data["event"] for name, data in self.gateway.events(run) if name == "remote.progressed"]
        return [one for event in events for one in event.get("activity", [])]


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("members")
    with Stack(folder) as stack:
        stack.model(HERE / "script.yaml")
        stack.agent(HERE / "boss.yaml", start=False)
        for name, arguments in (("writer", []), ("keeper", ["loads"]), ("painter", ["sees"])):
            (folder / name).mkdir()
            file = folder / f"{name}.yaml"
            command = [sys.executable, str(PROGRAM), *arguments]
            file.write_text(FILE.format(name=name, command=command))
            stack.add(name, "cadre.cli.main", "member", file, start=False)
        gateway = stack.open_gateway(4)
        yield Deployment(stack, gateway, folder)


def test_a_manager_has_it_do_a_task(deployment: Deployment) -> None:
    gateway = deployment.gateway
    assert "Ready." in gateway.answer("boss", "have writer: say Ready.")


def test_its_last_message_is_the_answer_and_its_work_is_told(deployment: Deployment) -> None:
    (deployment.folder / "writer" / "notes").write_text("Basalt.")
    run = deployment.gateway.submit("writer", "think of rocks\nsay first\nread notes\nsay second")
    assert deployment.gateway.succeeded(run) == "second"
    told = deployment.told(run)
    assert [(one["type"], one.get("text")) for one in told if one["type"] in ("thought", "message")] == [
        ("thought", "of rocks"),
        ("message", "first"),
        ("message", "second"),
    ]
    assert [one["status"] for one in told if one["type"] == "tool"] == ["in_progress", "completed"]
    (read,) = [one for one in told if one.get("status") == "completed"]
    assert (read["title"], read["sort"], read["text"]) == ("Read notes", "read", "Basalt.")
    assert [one["entries"] for one in told if one["type"] == "plan"] == [
        [{"content": "of rocks", "status": "in_progress"}]
    ]


def test_a_long_answer_is_a_file_and_arguments_and_files_reach_it(deployment: Deployment) -> None:
    gateway = deployment.gateway
    found = gateway.answer("writer", f"say {'word ' * 8_000}")
    assert found["$file"]["size"] == len("word " * 8_000) - 1
    said = gateway.answer("writer", "echo", inputs={"case": "0815", "book": found})["$file"]
    assert said["size"] > found["$file"]["size"], "the book and the arguments"
    assert '{"case":"0815","book":"answer.txt"}' in gateway.answer(
        "writer", "echo", inputs={"case": "0815", "book": "answer.txt"}
    )


def test_images_are_shown_to_those_that_see_and_linked_for_others(deployment: Deployment) -> None:
    gateway = deployment.gateway
    assert gateway.answer("painter", "echo", images=[PIXEL]).startswith("[image/png of 78 bytes]")
    linked = gateway.answer("writer", "echo", images=[PIXEL])
    assert linked.startswith("[1-image-1.png: ")
    assert "You cannot be shown images here" in linked
    assert "1-image-1.png" in linked.split("You cannot", 1)[1]


def test_a_permission_is_asked_of_a_person(deployment: Deployment) -> None:
    for verdict, said in (("approved", "wrote a.txt"), ("rejected", "was not allowed to write a.txt")):
        (deployment.folder / "writer" / "a.txt").unlink(missing_ok=True)
        run = deployment.gateway.submit("writer", "write a.txt hello")
        (asked,) = deployment.question(run)["arguments"]["asked"]
        assert (asked["tool"], asked["arguments"]) == ("Write a.txt", {"text": "hello"})
        assert not (deployment.folder / "writer" / "a.txt").exists()
        deployment.decide(run, verdict)
        assert deployment.gateway.succeeded(run) == said
    assert not (deployment.folder / "writer" / "a.txt").exists()


def test_a_persons_words_are_told_to_it(deployment: Deployment) -> None:
    run = deployment.gateway.submit("writer", "write b.txt hello")
    deployment.decide(run, "rejected", feedback="Not on a Sunday.")
    answer = deployment.gateway.succeeded(run)
    assert "Not on a Sunday." in answer


def test_what_it_has_used_is_the_runs(deployment: Deployment) -> None:
    run = deployment.gateway.submit("writer", "spend 700 30 0.25\nsay done")
    deployment.gateway.succeeded(run)
    used = deployment.gateway.run(run)["usage"]
    assert (used["input_tokens"], used["output_tokens"], used["cost"]) == (700, 30, 0.25)


def test_a_budget_ends_its_work(deployment: Deployment) -> None:
    run = deployment.gateway.submit("writer", "spend 700 30 0.25\nwait never-1\nsay done", budget={"cost": 0.1})
    ended = deployment.gateway.finished(run)
    assert (ended["state"], ended["error"]["type"]) == ("error", "BudgetExceeded")


def test_a_refusal_is_a_failure(deployment: Deployment) -> None:
    ended = deployment.gateway.finished(deployment.gateway.submit("writer", "say No, thanks.\nrefuse"))
    assert (ended["state"], ended["error"]["type"]) == ("error", "RemoteAgentFailed")
    assert "No, thanks." in ended["error"]["message"]


def test_an_end_of_the_run_ends_its_work(deployment: Deployment) -> None:
    run = deployment.gateway.submit("writer", "wait never-2\nsay too late")
    deployment.await_deed("writer", "wait never-2")
    deployment.gateway.request("POST", f"/v1/runs/{run}/cancel").raise_for_status()
    assert deployment.gateway.finished(run)["state"] == "cancelled"
    # It works on one task at a time: the place is free again.
    assert deployment.gateway.answer("writer", "say free") == "free"
    assert "say too late" not in deployment.deeds("writer")


def test_a_program_that_dies_goes_on_in_its_session_or_its_outcome_is_unknown(deployment: Deployment) -> None:
    keeper = deployment.gateway.submit("keeper", "say begun\ndie tomb-1\nsay alive")
    assert deployment.gateway.succeeded(keeper) == "begunalive"
    writer = deployment.gateway.submit("writer", "say begun\ndie tomb-2\nsay alive")
    ended = deployment.gateway.finished(writer)
    assert (ended["state"], ended["error"]["type"]) == ("error", "Interrupted")
    assert "outcome unknown" in ended["error"]["message"]
    assert deployment.deeds("writer").count("die tomb-2") == 1, "it was not asked again"


@pytest.mark.parametrize(("name", "outcome"), [("keeper", "success"), ("writer", "error")])
def test_a_killed_service_finds_its_task(deployment: Deployment, name: str, outcome: str) -> None:
    run = deployment.gateway.submit("boss", f"have {name}: wait go-{name}\nsay gone")
    deployment.await_deed(name, f"wait go-{name}")
    deployment.member(name).kill()
    (deployment.folder / name / f"go-{name}").touch()
    deployment.member(name).start()
    child = deployment.gateway.wait_for(run, "delegate.started")["event"]["call"]
    ended = deployment.gateway.finished(child)
    assert ended["state"] == outcome, ended
    if outcome == "success":
        assert ended["output"] == "gone"
    else:
        assert "outcome unknown" in ended["error"]["message"]
        assert deployment.deeds(name).count(f"wait go-{name}") == 1
    deployment.gateway.succeeded(run)


def test_a_persons_word_outlives_the_program_and_the_service(deployment: Deployment) -> None:
    run = deployment.gateway.submit("keeper", "write c.txt hello")
    deployment.question(run)
    deployment.member("keeper").kill()
    deployment.decide(run, "approved")
    deployment.member("keeper").start()
    assert deployment.gateway.succeeded(run).endswith("wrote c.txt")
    assert (deployment.folder / "keeper" / "c.txt").read_text() == "hello"


def test_a_program_is_a_member_without_a_file(deployment: Deployment) -> None:
    command = f"{sys.executable} {PROGRAM}"
    workspace = deployment.folder / "allowed"
    workspace.mkdir()
    options = ["--workspace", str(workspace), "--name", "allowed", "--permissions", "allow"]
    deployment.stack.add("allowed", "cadre.cli.main", "member", "--acp", command, *options)
    assert deployment.gateway.answer("allowed", "write d.txt hello") == "wrote d.txt"
    assert (workspace / "d.txt").read_text() == "hello"

"""Tests of what agents remember across sessions, no matter who is killed on the way, and what is forgotten."""

import signal
from pathlib import Path
from typing import Any

import pytest

from harness.command import Commands
from harness.patience import eventually
from harness.people import assert_sound, events_of
from harness.stack import Gateway, Service, Stack
from harness.texts import holds

HERE = Path(__file__).parent
TEAM = HERE / "remembering"


@pytest.fixture(scope="module")
def more(stack: Stack) -> None:
    directory = str(stack.folder / "memory")
    settings = {"CADRE_MEMORY_DIRECTORY": directory, "CADRE_MEMORY_EMBEDDINGS": "none"}
    stack.add("memory", "cadre_memory", start=False, **settings)


@pytest.fixture(scope="module")
def memory(stack: Stack, gateway: Gateway) -> Service:
    return stack.services["memory"]


def listed(gateway: Gateway, **whose: str) -> list[dict[str, Any]]:
    answer = gateway.request("GET", "/v1/memory", params={**whose, "limit": "50"})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["memories"]
    return found


def left(gateway: Gateway, count: int, **whose: str) -> list[dict[str, Any]]:
    """Return what is remembered, once it is so much; no one has waited for it to be stored."""
    found: list[dict[str, Any]] = []

    def there() -> bool:
        found[:] = listed(gateway, **whose)
        return len(found) >= count

    eventually(there, what=f"{count} memories", state=lambda: found)
    assert len(found) == len({one["memory"] for one in found}) == count, found
    return found


def note(gateway: Gateway, text: str, user: str, session: str = "first") -> str:
    """A run that leaves its step and its answer; its id."""
    run = gateway.submit("keeper", f"note: {text}", user=user, session=f"{session}-{user}")
    assert gateway.finished(run)["state"] == "success"
    return run


def ask(gateway: Gateway, words: str, user: str, agent: str = "keeper", session: str = "second") -> str:
    return gateway.submit(agent, f"ask: {words}", user=user, session=f"{session}-{user}")


def recalled(gateway: Gateway, run: str) -> dict[str, Any]:
    """The run's only answer of the memory service."""
    assert len(events_of(gateway, run, "memory.asked")) == 1
    [event] = events_of(gateway, run, "memory.recalled")
    return event


def test_what_one_session_left_the_next_one_knows_and_nobody_else(gateway: Gateway, memory: Service) -> None:
    run = note(gateway, "The red bicycle stands behind the mill.", "anna")
    kept = left(gateway, 2, user="anna")
    assert {(one["scope"], one["user"], one["run"], one["agent"], one["kind"]) for one in kept} == {
        ("user", "anna", run, "keeper", "step"),
        ("user", "anna", run, "keeper", "answer"),
    }
    asked = ask(gateway, "Where is the red bicycle?", "anna")
    result = gateway.finished(asked)
    assert "behind the mill" in result["output"]
    hits = recalled(gateway, asked)["memories"]
    assert {(hit["run"], hit["agent"], hit["scope"]) for hit in hits} == {(run, "keeper", "user")}

    for other in (
        ask(gateway, "Where is the red bicycle?", "bob"),
        gateway.submit("keeper", "ask: Where is the red bicycle?", session="second-anna-too"),
        gateway.submit("keeper", "ask: Where is the red bicycle?"),
    ):
        assert gateway.finished(other)["output"] == "nothing is known"
        assert recalled(gateway, other)["memories"] == []


def test_a_run_waits_for_a_memory_service_that_was_killed(gateway: Gateway, memory: Service, cadre: Commands) -> None:
    note(gateway, "The cat is called Matilda.", "carla")
    left(gateway, 2, user="carla")
    # Stopped it has the question in hand when it dies.
    memory.signal(signal.SIGSTOP)
    run = ask(gateway, "What is the cat called?", "carla")
    gateway.wait_for(run, "memory.asked")
    memory.kill()
    memory.start()
    assert "Matilda" in gateway.finished(run)["output"]
    assert recalled(gateway, run)["error"] is None
    assert_sound(cadre, run)


def test_a_run_begins_without_a_memory_service_that_does_not_answer(
    gateway: Gateway, memory: Service, cadre: Commands
) -> None:
    note(gateway, "The cellar is locked.", "doris")
    left(gateway, 2, user="doris")
    memory.kill()
    try:
        run = ask(gateway, "Is the cellar locked?", "doris", agent="hasty")
        result = gateway.finished(run)
    finally:
        memory.start()
    assert (result["state"], result["output"]) == ("success", "nothing is known")
    error = recalled(gateway, run)["error"]
    assert error["code"] == "interrupted"
    assert holds(error["message"], "2 s", "`cadre memory`")
    # The question is still on the bus: what comes of it now changes nothing.
    again = ask(gateway, "Is the cellar locked?", "doris", agent="hasty", session="third")
    assert "locked" in gateway.finished(again)["output"]
    assert gateway.finished(run)["output"] == "nothing is known"
    assert_sound(cadre, run)


def test_an_agent_killed_while_it_waits_for_its_memories(
    stack: Stack, gateway: Gateway, memory: Service, cadre: Commands
) -> None:
    note(gateway, "The ferry leaves at noon.", "emil")
    left(gateway, 2, user="emil")
    keeper = stack.services["keeper"]
    memory.signal(signal.SIGSTOP)
    try:
        run = ask(gateway, "When does the ferry leave?", "emil")
        gateway.wait_for(run, "memory.asked")
        keeper.kill()
    finally:
        memory.signal(signal.SIGCONT)
    keeper.start()
    assert "at noon" in gateway.finished(run)["output"]
    assert recalled(gateway, run)["error"] is None
    assert_sound(cadre, run)


def test_what_a_killed_agent_owed_the_memory_service_arrives_once(
    stack: Stack, gateway: Gateway, memory: Service, tmp_path: Path
) -> None:
    """It dies when its run has ended and the answer is not left yet, and again when it is left and no one knows."""
    keeper, died = stack.services["keeper"], tmp_path / "died"
    keeper.terminate()
    dying = stack.add("dying", HERE / "dying_agent.py", TEAM / "keeper.yaml", DIED=str(died))
    try:
        run = gateway.submit("keeper", "note: The ladder is short.", user="frida")
        for death in ("x", "xx"):
            eventually(lambda: not dying.is_running, what="the agent has died")
            assert died.read_text() == death
            if death == "x":
                assert gateway.finished(run)["state"] == "success"
                assert listed(gateway, user="frida", kind="answer") == []
            dying.start(wait=death == "xx")  # the first time it may be dead before it is ready
        assert gateway.finished(run)["state"] == "success"
        eventually(lambda: died.read_text() == "xx.", what="the answer is left once more")
        # What is left later is stored behind all of that.
        note(gateway, "The rope is long.", "frida", session="second")
        kept = [one for one in left(gateway, 4, user="frida") if one["run"] == run]
        assert {one["kind"]: one["text"] for one in kept} == {
            "step": 'jot({"text":"The ladder is short."}): jotted: The ladder is short.',
            "answer": "Task: note: The ladder is short.\nAnswer: Thank you: jotted: The ladder is short.",
        }
    finally:
        dying.terminate()
        keeper.start()


def test_what_a_person_has_removed_is_not_known_any_more_and_replays_all_the_same(
    gateway: Gateway, memory: Service, cadre: Commands
) -> None:
    note(gateway, "Verses by Gerda are about the sea.", "gerda")
    note(gateway, "Gerda and the sea: a second word.", "gerda", session="other")
    left(gateway, 4, user="gerda")
    long = gateway.submit("historian", "verses: 22, then what Gerda said of the sea", user="gerda")
    result = gateway.finished(long)
    assert result["state"] == "success"
    assert "Verses by Gerda" in result["output"], "a summary leaves what was recalled as it is"
    assert len(events_of(gateway, long, "history.summarized")) >= 2
    hits = recalled(gateway, long)["memories"]
    asked = ask(gateway, "What does Gerda write about the sea?", "gerda")
    assert "the sea" in gateway.finished(asked)["output"]

    gone = cadre("memory", "forget", "--user", "gerda", "--yes")
    assert gone.returncode == 0, gone.stderr
    assert listed(gateway, user="gerda") == []
    later = ask(gateway, "What does Gerda write about the sea?", "gerda", session="later")
    assert gateway.finished(later)["output"] == "nothing is known"
    assert_sound(cadre, long)
    assert_sound(cadre, asked)
    assert recalled(gateway, long)["memories"] == hits


def test_an_erased_tree_takes_its_own_memories_along(gateway: Gateway, memory: Service, cadre: Commands) -> None:
    run = gateway.submit("scribe", "pass: The bell is cracked.", user="heidi")
    assert gateway.finished(run)["state"] == "success"
    own = left(gateway, 4, run=run)
    assert sorted(one["scope"] for one in own) == ["run", "run", "user", "user"]
    assert {one["run"] for one in own if one["scope"] == "user"} == {f"{run}_1_1"}
    erased = cadre("runs", "rm", run)
    assert erased.returncode == 0, erased.stderr
    eventually(
        lambda: [one["scope"] for one in listed(gateway, run=run)] == ["user", "user"],
        what="the memories of the tree are gone, those of the person stay",
        state=lambda: listed(gateway, run=run),
    )


def test_the_files_of_a_run_can_be_searched_by_all_that_work_for_it(gateway: Gateway, memory: Service) -> None:
    files = {"contract.md": "data:text/markdown;base64,VGhlIG5vdGljZSBwZXJpb2QgaXMgbmluZSB3ZWVrcy4="}
    run = gateway.submit("scribe", "through: notice period", files=files, session="with-files")
    result = gateway.finished(run)
    assert result["state"] == "success", result
    assert "nine weeks" in result["output"]
    # Another turn has the same files; a run that was given none is offered no search.
    again = gateway.submit("keeper", "search: notice period", session="with-files-2", files=files)
    assert "nine weeks" in gateway.finished(again)["output"]
    turn = gateway.submit("keeper", "search: notice period", session="with-files-2")
    bare = gateway.submit("keeper", "search: notice period")
    for id_, searches in ((turn, True), (bare, False)):
        gateway.finished(id_)
        offers = str([event["tools"] for event in events_of(gateway, id_, "toolset.changed")])
        assert ("query_resources" in offers) == searches

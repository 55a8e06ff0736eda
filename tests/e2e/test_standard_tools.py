"""The standard tools as a service: a question to a person, a search in a folder, a page of the web."""

from pathlib import Path

import pytest

from cadre_standard_tools.asking import NO_ANSWER
from harness.command import Commands
from harness.people import decide, events_of, waiting
from harness.stack import Gateway, Stack
from harness.texts import holds
from integration.web_server import Answer, web_server

TEAM = Path(__file__).parent / "standard"


@pytest.fixture(scope="module")
def more(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("documents")
    (folder / "moon.md").write_text("# The Moon\n\nTycho is a crater.")
    settings = {"CADRE_SEARCH": f"folder:{folder}", "CADRE_VISIT_PRIVATE": "127.0.0.1/32"}
    stack.add("standard", "cadre_tools", "cadre_standard_tools", start=False, **settings)


# --- ask_user


def test_a_person_answers_a_question_on_the_command_line(gateway: Gateway, cadre: Commands) -> None:
    run = gateway.submit("guide", "ask: Which colour?")
    (call,) = waiting(gateway, run)
    assert call["arguments"] == {"question": "Which colour?"}
    assert 'ask_user(question="Which colour?")' in cadre("approvals", "--run", run).stdout
    answered = cadre("correct", call["call"], "--set", "answer=Dark blue")
    assert answered.returncode == 0, answered.stderr
    assert "Dark blue" in gateway.succeeded(run)
    [decided] = events_of(gateway, run, "approval.decided")
    assert decided["arguments"] == {"question": "Which colour?", "answer": "Dark blue"}


def test_a_question_survives_the_death_of_everybody(stack: Stack, gateway: Gateway) -> None:
    run = gateway.submit("guide", "ask: Which colour?")
    (call,) = waiting(gateway, run)
    for service in (stack.services["standard"], stack.services["guide"]):
        service.kill()
    stack.start_all()
    arguments = {"question": "Which colour?", "answer": "red"}
    assert decide(gateway, call["call"], "corrected", arguments=arguments).status_code == 200
    assert "red" in gateway.finished(run)["output"]


def test_a_question_may_stay_unanswered(gateway: Gateway) -> None:
    run = gateway.submit("guide", "ask: Which colour?")
    (call,) = waiting(gateway, run)
    assert decide(gateway, call["call"], "approved").status_code == 200
    assert gateway.finished(run)["output"] == NO_ANSWER
    run = gateway.submit("guide", "ask: Which colour?")
    (call,) = waiting(gateway, run)
    assert decide(gateway, call["call"], "rejected", feedback="Choose yourself.").status_code == 200
    assert "Choose yourself." in gateway.finished(run)["output"]


def test_an_agent_that_may_not_ask_is_told_so_at_once(gateway: Gateway) -> None:
    run = gateway.submit("hasty", "ask: Which colour?")
    assert gateway.finished(run)["output"] == NO_ANSWER
    assert events_of(gateway, run, "approval.requested") == []


# --- the web


def test_a_search_looks_into_the_folder(gateway: Gateway) -> None:
    run = gateway.submit("guide", "search: Tycho")
    output = gateway.finished(run)["output"]
    assert "Tycho is a crater." in output
    assert "moon.md" in output
    nothing = gateway.answer("guide", "search: Ganymede")
    assert holds(nothing, "1", "ganymede")
    assert "moon.md" not in nothing


def test_a_page_is_visited(gateway: Gateway) -> None:
    with web_server() as web:
        web.pages["/"] = Answer(b"<h1>Moons</h1><p>Of <i>Jupiter</i></p>")
        assert gateway.answer("guide", f"visit: {web.url}/") == "# Moons\n\nOf *Jupiter*"

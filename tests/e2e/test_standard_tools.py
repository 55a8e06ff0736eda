"""The standard tools as a service: a question to a person, a search in a folder, a page of the web."""

from pathlib import Path

import pytest

from harness.command import Commands, commands_of, only_line
from harness.patience import eventually
from harness.people import decide, events_of, waiting
from harness.stack import Gateway, Stack
from integration.web_server import Answer, web_server

TEAM = Path(__file__).parent / "standard"


@pytest.fixture(scope="module")
def offered(stack: Stack, gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    """The gateway, once the agents may call the tools."""
    folder = tmp_path_factory.mktemp("documents")
    (folder / "moon.md").write_text("# The Moon\n\nTycho is a crater.")
    stack.add(
        "standard",
        "cadre_tools",
        "cadre_standard_tools",
        CADRE_SEARCH=f"folder:{folder}",
        CADRE_VISIT_PRIVATE="127.0.0.1/32",
    )

    def lack_nothing() -> bool:
        agents = gateway.request("GET", "/v1/agents").json()["agents"]
        return len(agents) == 2 and all(agent["missing"] == [] for agent in agents)

    eventually(lack_nothing, what="the tools are offered")
    return gateway


@pytest.fixture(scope="module")
def cadre(stack: Stack, offered: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Commands:
    return commands_of(stack, tmp_path_factory.mktemp("cli"))


# --- ask_user


def test_a_person_answers_a_question_on_the_command_line(
    stack: Stack, offered: Gateway, cadre: Commands
) -> None:
    run = offered.submit("guide", "ask: Which colour?")
    (call,) = waiting(offered, run)
    assert call["arguments"] == {"question": "Which colour?"}
    assert 'ask_user(question="Which colour?")' in cadre("approvals", "--run", run).stdout
    answered = cadre("correct", call["call"], "--set", "answer=Dark blue")
    assert answered.returncode == 0, answered.stderr
    result = offered.finished(run)
    assert result["state"] == "success", stack.logs()
    assert "Dark blue" in result["output"]
    [decided] = events_of(offered, run, "approval.decided")
    assert decided["arguments"] == {"question": "Which colour?", "answer": "Dark blue"}


def test_a_question_survives_the_death_of_everybody(stack: Stack, offered: Gateway) -> None:
    run = offered.submit("guide", "ask: Which colour?")
    (call,) = waiting(offered, run)
    for service in (stack.services["standard"], stack.services["guide"]):
        service.kill()
    stack.start_all()
    arguments = {"question": "Which colour?", "answer": "red"}
    assert decide(offered, call["call"], "correct", arguments=arguments).status_code == 200
    assert "red" in offered.finished(run)["output"], stack.logs()


def test_a_question_may_stay_unanswered(offered: Gateway) -> None:
    run = offered.submit("guide", "ask: Which colour?")
    (call,) = waiting(offered, run)
    assert decide(offered, call["call"], "approve").status_code == 200
    assert offered.finished(run)["output"] == "No answer was given."
    run = offered.submit("guide", "ask: Which colour?")
    (call,) = waiting(offered, run)
    assert decide(offered, call["call"], "reject", feedback="Choose yourself.").status_code == 200
    assert "Choose yourself." in offered.finished(run)["output"]


def test_an_agent_that_may_not_ask_is_told_so_at_once(offered: Gateway) -> None:
    run = offered.submit("hasty", "ask: Which colour?")
    assert offered.finished(run)["output"] == "No answer was given."
    assert events_of(offered, run, "approval.requested") == []


# --- the web


def test_a_search_looks_into_the_folder(stack: Stack, offered: Gateway) -> None:
    run = offered.submit("guide", "search: Tycho")
    output = offered.finished(run)["output"]
    assert "Tycho is a crater." in output, stack.logs()
    assert "moon.md" in output
    run = offered.submit("guide", "search: Ganymede")
    assert "None of 1 documents has any of the words ganymede" in offered.finished(run)["output"]


def test_a_page_is_visited(stack: Stack, offered: Gateway) -> None:
    with web_server() as web:
        web.pages["/"] = Answer(b"<h1>Moons</h1><p>Of <i>Jupiter</i></p>")
        run = offered.submit("guide", f"visit: {web.url}/")
        assert offered.finished(run)["output"] == "# Moons\n\nOf *Jupiter*", stack.logs()


def test_what_may_not_be_visited_is_an_observation(offered: Gateway) -> None:
    run = offered.submit("guide", "visit: http://169.254.169.254/latest/meta-data")
    result = offered.finished(run)
    assert result["state"] == "success"
    assert "169.254.169.254, which is not on the public internet" in result["output"]


# --- settings


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("CADRE_SEARCH", "google", "must be folder:PATH or searxng:URL"),
        ("CADRE_VISIT_PRIVATE", "yes", "must be 0, 1 (all), or networks"),
    ],
)
def test_a_wrong_setting_is_one_line(cadre: Commands, variable: str, value: str, problem: str) -> None:
    line = only_line(cadre("tools", "cadre_standard_tools", **{variable: value}), 2)
    assert f"{variable}={value}: {problem}" in line


def test_single_tools_are_served_by_their_module(cadre: Commands) -> None:
    line = only_line(cadre("tools", "cadre_standard_tools.asking:web_search"), 2)
    assert "its tools are: ask_user" in line

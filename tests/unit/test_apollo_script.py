"""The script of the Apollo team, played against its real tools and prompts, gives an answer that holds."""

import contextlib
import io
import json
import runpy
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from cadre.deploy.team_file import read_team
from cadre.errors import TerminalError
from cadre.kinds.code.kind import read_code
from cadre.kinds.code.section import code_of, prompt_terms
from cadre.prompting.prompts import Prompts, prompts_for
from cadre.spec.agent import AgentSpec
from cadre.spec.agent_file import read_agent
from cadre.spec.policy import why_untrue
from cadre.tools.loading import load_tools
from cadre_scripted_model.request import read_request
from cadre_scripted_model.script_player import Script, read_script, render_reply

TEAM = Path(__file__).parents[2] / "teams" / "apollo"
DEMO: dict[str, Any] = yaml.safe_load((TEAM / "team.yaml").read_text())["spec"]
CHECK = runpy.run_path(str(TEAM / "check.py"))


class Stage:
    """Plays agents one after the other, without services: what each calls, and what it reads in return."""

    def __init__(self) -> None:
        self.agents = {spec.name: spec for spec in (read_agent(TEAM / file) for file in DEMO["agents"])}
        self.tools = {tool.name: tool for file in DEMO["tools"] for tool in load_tools(str(TEAM / file))}
        self.script: Script = read_script(TEAM / DEMO["script"])
        self.prompts = Prompts.load("tool_calling")
        self.missing: set[str] = set()
        """Agents that are not running."""
        self.log: list[tuple[str, list[str], list[str]]] = []
        """Agent, calls of the step, observations."""

    def play(self, agent: str, task: str) -> str:
        spec = self.agents[agent]
        if spec.kind == "code":
            return self.play_code(spec, task)
        system = self.prompts.system([self.tools[t].card for t in spec.tools], [], spec.instructions)
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": system},
            {"role": "user", "content": task},
        ]
        for _ in range(spec.limits.max_steps):
            team = [str(member) for member in spec.team if str(member) not in self.missing]
            reply = self.ask(messages, [*spec.tools, *team, "final_answer"])
            calls = [(call["name"], call["arguments"]) for call in reply["tool_calls"]]
            if calls[0][0] == "final_answer":
                return str(calls[0][1]["answer"])
            observations = [self.observe(spec, name, arguments) for name, arguments in calls]
            self.log.append((agent, [name for name, _ in calls], observations))
            ids = [f"{len(messages)}_{index}" for index in range(len(calls))]
            functions = [{"name": n, "arguments": json.dumps(a)} for n, a in calls]
            written = [{"id": i, "type": "function", "function": f} for i, f in zip(ids, functions, strict=True)]
            messages.append({"role": "assistant", "content": reply.get("content"), "tool_calls": written})
            messages += [
                {"role": "tool", "tool_call_id": i, "content": o} for i, o in zip(ids, observations, strict=True)
            ]
        raise AssertionError(f"{agent} does not come to an end")

    def play_code(self, spec: AgentSpec, task: str) -> str:
        """Runs the blocks in this process: what the sandbox adds to that has its own tests."""
        prompts, tools = prompts_for(spec), [self.tools[name] for name in spec.tools]
        system = prompts.system([tool.card for tool in tools], [], spec.instructions, prompt_terms(spec))
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": system},
            {"role": "user", "content": task},
        ]
        given: list[str] = []
        state: dict[str, Any] = {tool.name: tool for tool in tools} | {"final_answer": given.append}
        for _ in range(spec.limits.max_steps):
            content = self.ask(messages, [])["content"]
            printed = io.StringIO()
            try:
                with contextlib.redirect_stdout(printed):
                    exec(read_code(content, code_of(spec)), state)
            except (TypeError, ValueError) as error:
                print(f"{type(error).__name__}: {error}", file=printed)
            self.log.append((spec.name, ["code"], [printed.getvalue()]))
            if given:
                assert all(why_untrue(check, {"answer": given[0], "task": task}) is None for check in spec.checks)
                return given[0]
            observed = f"Observation:\nExecution logs:\n{printed.getvalue()}"
            messages += [{"role": "assistant", "content": content}, {"role": "user", "content": observed}]
        raise AssertionError(f"{spec.name} does not come to an end")

    def ask(self, messages: list[dict[str, Any]], functions: list[str]) -> dict[str, Any]:
        tools = [{"type": "function", "function": {"name": name}} for name in functions]
        view = read_request({"model": "scripted", "messages": messages, "tools": tools})
        chosen = self.script.choose(view)
        assert chosen, f"no rule for {messages[-1]['content'][:200]!r}"
        reply: dict[str, Any] = msgspec.to_builtins(render_reply(chosen[1], view))
        return reply

    def observe(self, spec: AgentSpec, name: str, arguments: dict[str, Any]) -> str:
        if name in spec.team:
            prompts = prompts_for(self.agents[name])
            answer = self.play(name, prompts.managed_task(name, arguments["task"]))
            return prompts.managed_report(name, answer)
        assert name in spec.tools
        tool = self.tools[name]
        try:
            output = tool(**tool.validate(arguments))
        except (ValueError, TerminalError) as error:
            return self.prompts.error(str(error))
        return msgspec.json.encode(output).decode()


def use(monkeypatch: pytest.MonkeyPatch, stage: Stage, tool: str, folder: Path) -> None:
    monkeypatch.setattr(sys.modules[stage.tools[tool].__module__], "FOLDER", folder)


def verdicts(answer: str, data: Path = TEAM / "data") -> list[bool]:
    found = CHECK["check"](answer, CHECK["read_tables"](data), TEAM / "documents")
    return [is_right for is_right, _ in found]


def test_the_team_file_names_what_there_is() -> None:
    team = read_team(TEAM)
    assert team.demo is not None
    assert team.demo.check == "check.py"
    stage = Stage()
    assert team.agents.keys() == stage.agents.keys()
    for spec in stage.agents.values():
        assert set(spec.tools) <= stage.tools.keys()
        assert set(spec.team) <= stage.agents.keys()


def test_the_demo_ends_in_a_right_answer() -> None:
    stage = Stage()
    answer = stage.play("manager", DEMO["demo"]["task"])
    assert verdicts(answer) == [True] * 7
    assert "confirmed by 2 of 2 documents" in answer
    assert len(answer.split()) <= 150
    assert ("manager", ["analyst", "researcher", "statistician"]) in [(agent, calls) for agent, calls, _ in stage.log]
    assert ("researcher", ["checker"]) in [(agent, calls) for agent, calls, _ in stage.log]


def test_the_statistician_computes_in_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    answer = stage.play("manager", DEMO["demo"]["task"])
    assert "4.5 kg more rock; the correlation of the two is 0.98" in answer
    read, computed = [seen for agent, _, seen in stage.log if agent == "statistician"]
    assert "Apollo 17: 22.0" in read[0]
    assert computed == [""]
    assert "4.5" not in (TEAM / DEMO["script"]).read_text(), "no figure is written in the script"
    shutil.copytree(TEAM / "data", tmp_path / "data")
    table = tmp_path / "data" / "missions.csv"
    table.write_text(table.read_text().replace(",110.5,", ",10.5,"))
    use(monkeypatch, stage, "select_rows", tmp_path / "data")
    other = stage.play("statistician", "How do they go together?")
    assert "Correlation: 0.98" not in other
    assert verdicts(answer, tmp_path / "data")[5:] == [False, False]


def test_without_a_statistician_the_trend_stays_open() -> None:
    stage = Stage()
    stage.missing = {"statistician"}
    answer = stage.play("manager", DEMO["demo"]["task"])
    assert "stays open: no statistician has computed it" in answer
    assert verdicts(answer) == [True] * 6
    assert len(answer.split()) <= 150


def test_a_statistician_without_rows_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    use(monkeypatch, stage, "select_rows", tmp_path)
    answer = stage.play("statistician", "How do they go together?")
    assert answer.startswith("The landings could not be computed with: ")
    assert "no table 'missions'" in answer


def test_a_wrong_column_is_put_right_by_what_the_error_says() -> None:
    stage = Stage()
    stage.play("analyst", "Add it up.")
    (_, _, first), (_, _, second) = stage.log
    assert first[0].startswith("Error: no column 'mass_kg'")
    assert not first[1].startswith("Error:")
    assert not [text for text in second if text.startswith("Error:")]


def test_other_data_give_another_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(TEAM / "data", tmp_path / "data")
    table = tmp_path / "data" / "missions.csv"
    table.write_text(table.read_text().replace(",95.7,", ",295.7,"))
    stage = Stage()
    use(monkeypatch, stage, "aggregate", tmp_path / "data")
    answer = stage.play("manager", DEMO["demo"]["task"])
    assert verdicts(answer, tmp_path / "data")[:4] == [True] * 4
    assert verdicts(answer)[0] is False
    assert "Tables and documents disagree" in answer


def test_a_find_in_one_document_only_is_partly_confirmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(TEAM / "documents", tmp_path / "documents")
    care = tmp_path / "documents" / "sample-care.md"
    care.write_text(care.read_text().replace("74220", "74001"))
    stage = Stage()
    use(monkeypatch, stage, "search_documents", tmp_path / "documents")
    assert "partly confirmed by 1 of 2 documents" in stage.play("manager", DEMO["demo"]["task"])


def test_a_member_without_result_says_so_and_the_manager_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    use(monkeypatch, stage, "search_documents", tmp_path)
    answer = stage.play("manager", DEMO["demo"]["task"])
    assert answer.startswith("The brief cannot be written")
    assert "The documents gave no answer." in answer


def test_the_plan_is_answered_without_tools() -> None:
    stage = Stage()
    prompt = stage.prompts.initial_plan(DEMO["demo"]["task"], [], [])
    reply = stage.ask([{"role": "user", "content": prompt}], [])
    assert reply["content"].endswith("<end_plan>")
    assert "tool_calls" not in reply


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("Apollo 17 brought home the most", "Apollo 16 brought home the most", 0),
        ("110.5 kg", "110.9 kg", 0),
        ("Apollo 11 leads", "Apollo 14 leads", 1),
        ("8.5 kg per hour", "5.8 kg per hour", 1),
        ("381.7", "1381.7", 2),
        ("80.5 hours", "85.0 hours", 3),
        ("74220", "15415", 4),
        ("4.5 kg more", "5.4 kg more", 5),
        ("is 0.98", "is 0.89", 6),
    ],
)
def test_the_check_finds_a_wrong_figure(old: str, new: str, wrong: int) -> None:
    answer = Stage().play("manager", DEMO["demo"]["task"])
    assert old in answer
    assert verdicts(answer.replace(old, new)) == [index != wrong for index in range(7)]


def test_the_check_as_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = tmp_path / "answer.md"
    answer.write_text(Stage().play("manager", DEMO["demo"]["task"]))
    assert CHECK["main"]([str(answer)]) == 0
    assert capsys.readouterr().out.count("right  ") == 7
    answer.write_text("Apollo 17 brought most.")
    assert CHECK["main"]([str(answer)]) == 1
    assert capsys.readouterr().out.count("MISSING") == 7
    assert CHECK["main"]([str(tmp_path / "none")]) == 2
    assert CHECK["main"]([]) == 2

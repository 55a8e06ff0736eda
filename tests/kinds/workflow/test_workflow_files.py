"""Files with workflows: what they may say, and what is said of one that cannot work."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from cadre.cli.team.up import graph
from cadre.errors import SpecError
from cadre.kinds.workflow.section import ToolAction, action_of, workflow_of
from cadre.spec.agent_file import read_agent

HEAD = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: clerk}
spec:
  description: Works.
  kind: workflow
  tools: [look]
  team: [kid]
"""
WHOLE = """
  workflow:
    start: seen
    steps:
      seen:
        tool: {name: look, arguments: {at: "{{ task }}"}}
        attempts: {most: 3, pause: 2s, on: [busy]}
        route:
          instruction: What is it?
          options: {bird: sign, fish: rest}
          default: done
      sign: {approve: {question: "{{ seen }}?", seconds: 2d, yes: rest, no: done, expired: done}}
      rest: {wait: 90s, next: pick}
      pick: {choose: [{if: "seen.n > 3", next: ask}], on_error: done}
      ask: {ask: {prompt: "How many? {{ error }}", schema: {type: integer}}, next: kid}
      kid: {agent: {name: kid, task: Do it.}, undo: back, next: done}
      back: {tool: look}
      done: {end: "{{ seen }}"}
"""


def test_a_whole_one_is_read(tmp_path: Path) -> None:
    file = tmp_path / "clerk.yaml"
    file.write_text(HEAD + WHOLE)
    workflow = workflow_of(read_agent(file))
    assert next(iter(workflow.steps)) == "seen"
    assert isinstance(action_of(workflow.steps["back"]), ToolAction)


@pytest.mark.parametrize(
    ("was", "now", "message"),
    [
        ("start: seen", "start: sea", "workflow.start: names 'sea'; write one of seen, sign"),
        ("next: pick", "next: pock", "workflow.steps.rest.next"),
        ("fish: rest", "fish: nowhere", "workflow.steps.seen.route.options.fish"),
        ("{bird: sign, fish: rest}", "{}", "workflow.steps.sign"),
        (
            "name: look, ",
            "name: lock, ",
            "workflow.steps.seen.tool: 'lock'",
        ),
        ("name: kid, ", "name: cat, ", "workflow.steps.kid.agent: 'cat'"),
        (
            "{{ task }}",
            "{{ tusk }}",
            "workflow.steps.seen.tool.arguments: reads 'tusk'",
        ),
        ("seen.n > 3", "seen.n >", "workflow.steps.pick.choose: 'seen.n >' is no expression"),
        ("{{ seen }}?", "{{ seen ?", "workflow.steps.sign.approve.question: '{{ seen ?' is no template"),
        ("wait: 90s", "wait: soon", "workflow.steps.rest.wait.seconds: 'soon'"),
        ("wait: 90s", "wait: {}", "workflow.steps.rest.wait"),
        (
            "wait: 90s",
            "wait: {seconds: 9, expired: done}",
            "workflow.steps.rest.wait.expired",
        ),
        ("pause: 2s", "pause: -1", "workflow.steps.seen.attempts.pause: -1"),
        ("most: 3", "most: 0", "workflow.steps.seen.attempts.most"),
        ("type: integer", "type: whole", "workflow.steps.ask.ask.schema: "),
        ("undo: back, ", "", "workflow.steps.back"),
        (
            "rest: {wait: 90s, next",
            "rest: {wait: 90s, visits: 0, next",
            "workflow.steps.rest.visits: must be",
        ),
        ("back: {tool: look}", "back: {tool: look, end: x}", "exactly one of"),
        ("back: {tool: look}", "back: {next: done}", "exactly one of"),
        ('done: {end: "{{ seen }}"}', "done: {wait: 1, next: done}", "workflow.steps.seen: "),
        ("      done:", "      now:", "workflow.steps.now"),
        (
            "next: pick",
            "next: pick, retries: 3",
            "unknown key 'retries' in spec.workflow.steps.rest; known keys",
        ),
        (
            "default: done",
            "defalt: done",
            "unknown key 'defalt' in spec.workflow.steps.seen.route; known keys",
        ),
        (
            "next: ask}]",
            "next: ask, to: x}]",
            "unknown key 'to' in spec.workflow.steps.pick.choose; known keys",
        ),
        (
            "wait: 90s",
            "agent: {name: kid, task: x, additional_args: {}}",
            "unknown key 'additional_args' in spec.workflow.steps.rest.agent; known keys: name, task, inputs",
        ),
        (
            "{{ seen }}",
            "{{ additional_args.seen }}",
            "reads 'additional_args', ",
        ),
        ("kind: workflow", "kind: code", "kind: workflow"),
    ],
)
def test_what_cannot_work_is_said(was: str, now: str, message: str, tmp_path: Path) -> None:
    text = HEAD + WHOLE
    assert was in text
    file = tmp_path / "clerk.yaml"
    file.write_text(text.replace(was, now, 1))
    with pytest.raises(SpecError) as refused:
        read_agent(file)
    assert message in str(refused.value)


def test_it_is_drawn(tmp_path: Path) -> None:
    file = tmp_path / "clerk.yaml"
    file.write_text(HEAD + WHOLE)
    done = CliRunner().invoke(graph, [str(file)])
    lines = [line.strip() for line in done.output.splitlines()]
    assert lines[:2] == ["flowchart TD", "start([start]) --> step_seen"]
    assert {
        'step_seen -->|"bird"| step_sign',
        'step_pick -->|"seen.n #gt; 3"| step_ask',
        'step_pick -.->|"error"| step_done',
        "step_ask --> step_kid",
        "step_done --> stop([end])",
    } <= {*lines}

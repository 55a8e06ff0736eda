"""`cadre graph` of agents that propose, work on goals, or on a queue."""

from pathlib import Path

from click.testing import CliRunner

from cadre.cli.team.up import graph
from harness.texts import holds

HEAD = "apiVersion: cadre.dev/v1\nkind: Agent\nmetadata: {name: a}\nspec: {description: Works., tools: [look], "


def drawn(tmp_path: Path, spec: str) -> str:
    file = tmp_path / "a.yaml"
    file.write_text(f"{HEAD}{spec}}}\n")
    done = CliRunner().invoke(graph, [str(file)], standalone_mode=False)
    assert done.return_value == 0
    return done.output


def test_a_proposal_waits_for_a_person_where_a_policy_says_so(tmp_path: Path) -> None:
    text = drawn(tmp_path, "kind: solution, solution: {approve: always, implicit: {judge: {}}}")
    assert 'model --> review{{"a person agrees<br/>always"}}' in text
    (way,) = (line for line in text.splitlines() if line.strip().startswith("review -->"))
    assert holds(way, "approve", "correct", "add", "drop", "| calls[")
    assert 'calls <--> tool_0[/"look"/]' in text
    assert 'implicit_0>"judge"]' in text
    assert "review" not in drawn(tmp_path, "kind: solution")


def test_goals_and_the_queue_that_is_made_of_them(tmp_path: Path) -> None:
    text = drawn(tmp_path, 'kind: goals, checks: ["when: answer"], goals: {goals: ["Know \\"it\\""]}')
    assert 'goal_0>"Know #quot;it#quot;"] --> model' in text
    assert 'checks -.->|"does not fit"| model' in text
    queue = drawn(tmp_path, "kind: task_queue, task_queue: {create: false, goals: [Know it]}")
    assert 'goal_0>"Know it"] --> initialize' in queue
    assert "tasks --> prioritize --> queue" in queue

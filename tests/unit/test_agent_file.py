"""An agent's file: keys and values that do not exist are named, in any section they stand."""

from pathlib import Path

import pytest

from cadre.errors import SpecError
from cadre.kinds.code.section import code_of
from cadre.spec.agent_file import read_agent

HEAD = "apiVersion: cadre.dev/v1\nkind: Agent\nmetadata: {name: a}\nspec:\n  description: Works.\n"


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("mod: {}", "unknown key 'mod' in spec; known keys: description, kind, model"),
        ("model: {nam: x}", "unknown key 'nam' in spec.model; known keys: name, url"),
        ("model: {price: {inpt: 1}}", "unknown key 'inpt' in spec.model.price; known keys: input, output"),
        ("limits: {budget: {token: 1}}", "unknown key 'token' in spec.limits.budget; known keys: tokens"),
        ("code: {limits: {second: 1}}", "unknown key 'second' in spec.code.limits; known keys: seconds"),
        ("memory: {recal: 1}", "unknown key 'recal' in spec.memory; known keys: recall"),
        ("team: [{label: {a: b}}]", "unknown key 'label' in spec.team; known keys: labels"),
        ("memory: {scope: mine}", "write one of run, session, agent, team, user"),
        ("memory: {remember: all}", "answers or steps"),
        ("model: {url: 'localhost:8090'}", "spec.model.url"),
        (
            "model: {tool_choice: never}",
            "spec.model.tool_choice: invalid enum value 'never'; write auto, required",
        ),
        ("model: {tool_choice: {func: x}}", "unknown key 'func' in spec.model.tool_choice"),
        ("model: {tool_choice: {function: x}}", "model.tool_choice names 'x'; it may name final_answer"),
        ("model: {reasoning_effort: huge}", "write one of none, minimal, low, medium, high, xhigh, max"),
        ("model: {token_limit: tokens}", "write max_tokens or max_completion_tokens"),
        ("limits: {budget: {tokens: 0}}", "limits.budget.tokens: "),
        (
            "checks: ['when: additional_args.n > 1']",
            "answer, calls, inputs, task",
        ),
        ("timeouts: {'*': soon}", "spec.timeouts.*: 'soon'"),
        ("approval_seconds: 0s", "approval_seconds: "),
        ("kind: coder", "write one of tool_calling, code"),
        ("kind: code\n  model: {calls: native}", "spec.model.calls"),
        ("kind: code\n  model: {fallbacks: [{name: b, calls: text}]}", "spec.model.fallbacks[0].calls: says"),
    ],
)
def test_what_an_agent_does_not_have_is_named(section: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(f"{HEAD}  {section}\n")
    with pytest.raises(SpecError) as refused:
        read_agent(file)
    assert str(refused.value).startswith(f"{file}: ")
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "description: Works.",
            "kind: code",
            "key 'description' is missing in spec; known keys: description",
        ),
        ("Works.", "' '", "agent a: "),
        ("kind: Agent", "kind: Agents", "kind: invalid enum value 'Agents'; write Agent"),
        ("name: a", "name: very good", "agent name 'very good': "),
        ("kind: Agent", "kind: Agent\nkind: Team", "not YAML: line 3: the key 'kind'"),
        ("{name: a}", "{name: a", "not YAML: line 4: "),
        ("{name: a}", "2026-13-45", "not YAML: month must be"),
        (HEAD, "", "Expected `object`, got `null`; known keys"),
    ],
)
def test_what_a_file_as_a_whole_lacks_is_named(old: str, new: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(HEAD.replace(old, new))
    with pytest.raises(SpecError) as refused:
        read_agent(file)
    assert str(refused.value).startswith(f"{file}: {message}")


def test_a_length_of_time_is_seconds_or_a_text(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(
        f"{HEAD}  kind: code\n  tools: [look]\n  approval_seconds: 1d\n  timeouts: {{look: 90s, '*': 2}}\n"
        "  memory: {seconds: 5s}\n  limits: {seconds: 2h, away: 10m}\n"
        "  code: {limits: {seconds: 45s, wall_seconds: 1h}}\n"
        "  model: {name: m, timeout: 3m, seconds: 1h, patience: 2 hours, fallbacks: [{name: n, timeout: 4m}]}\n"
    )
    agent = read_agent(file)
    assert (agent.approval_seconds, agent.timeouts) == (86_400, {"look": 90, "*": 2})
    assert (agent.memory.seconds, agent.limits.seconds, agent.limits.away) == (5, 7200, 600)
    limits = code_of(agent).limits
    assert (limits.seconds, limits.wall_seconds) == (45, 3600)
    assert (agent.model.timeout, agent.model.seconds, agent.model.patience) == (180, 3600, 7200)
    assert agent.model.fallbacks[0].timeout == 240


def test_a_file_of_another_kind_names_the_command_for_it(tmp_path: Path) -> None:
    program, team = tmp_path / "agent.py", tmp_path / "team.yaml"
    program.write_text("from cadre import serve\n")
    team.write_text("apiVersion: cadre.dev/v1\nkind: Team\nmetadata: {name: t}\nspec: {agents: []}\n")
    for file, command in ((program, f"`python {program}`"), (team, f"`cadre up {team}`")):
        with pytest.raises(SpecError) as caught:
            read_agent(file)
        assert command in str(caught.value)

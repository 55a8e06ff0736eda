"""Tests of what a sandbox process is sent: variables, options, and who starts one."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from cadre.adapters.local_stack import Ports
from cadre.cli.team.doctor import isolation
from cadre.errors import SettingError
from cadre.local.processes import Stack
from cadre.protocol.cards import TIERS
from cadre_sandbox.host import SandboxSettings, blocks_at_once, read_sandbox_settings
from cadre_sandbox.interpreters import contract
from cadre_sandbox.serving.interpreter_tool import card_of
from harness.texts import holds
from unit.team_files import write_team

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "settings.md").read_text()


@pytest.mark.parametrize("field", [field.name for field in msgspec.structs.fields(SandboxSettings)])
def test_every_variable_is_documented_with_its_default(field: str) -> None:
    [row] = [line for line in PAGE.splitlines() if line.startswith(f"| `CADRE_SANDBOX_{field.upper()}` |")]
    default = getattr(SandboxSettings(), field)
    shown = f"{default:g}" if isinstance(default, float) else str(default) or "none"
    assert row.split("|")[2].strip(" `") == shown


def test_the_tiers_are_those_of_the_sandbox() -> None:
    assert TIERS == contract.TIERS
    assert SandboxSettings().tier in TIERS


def test_an_option_wins_over_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CADRE_SANDBOX_POOL", "gpu")
    monkeypatch.setenv("CADRE_SANDBOX_SESSIONS", "7")
    settings = read_sandbox_settings(pool="cpu", sessions=None)
    assert (settings.pool, settings.sessions) == ("cpu", 7)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("TIER", "vm", "CADRE_SANDBOX_TIER=vm"),
        ("POOL", "a.b", "CADRE_SANDBOX_POOL='a.b': use 1 to 64 letters"),
        ("SESSIONS", "0", "CADRE_SANDBOX_SESSIONS=0"),
        ("SECONDS", "soon", "CADRE_SANDBOX_SECONDS='soon'"),
        ("SECONDS", "nan", "CADRE_SANDBOX_SECONDS=nan"),
        ("MEMORY_MB", "1.5", "CADRE_SANDBOX_MEMORY_MB='1.5': must be a whole number"),
    ],
)
def test_a_wrong_value_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str) -> None:
    monkeypatch.setenv(f"CADRE_SANDBOX_{name}", value)
    with pytest.raises(SettingError) as caught:
        read_sandbox_settings()
    assert message in str(caught.value)


def test_no_more_blocks_at_once_than_interpreters() -> None:
    assert blocks_at_once(SandboxSettings(concurrency=9, sessions=3)) == 3
    assert blocks_at_once(SandboxSettings(concurrency=2, sessions=3)) == 2
    assert blocks_at_once(SandboxSettings(sessions=1000)) >= 2


def test_a_team_with_code_agents_gets_a_sandbox_per_pool(tmp_path: Path) -> None:
    kinds = {"a": "kind: code", "b": "kind: tool_calling", "c": "kind: code, code: {pool: heavy}"}
    team = write_team(tmp_path, kinds)
    assert team.pools == ["default", "heavy"]
    stack = Stack(tmp_path / "data", team, Ports(gateway=1, nats=2, model=3), lambda name, line: None)
    started = {service.name: list(service.argv) for service in stack.services()}
    for name, pool in (("sandbox", "default"), ("sandbox-heavy", "heavy")):
        assert started[name][1:] == ["-m", "cadre_sandbox", "--pool", pool]


async def test_where_code_cannot_be_run_its_agents_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = {"a": "kind: code", "b": "kind: tool_calling", "c": "kind: code"}
    team = write_team(tmp_path, kinds)
    monkeypatch.setenv("CADRE_SANDBOX_TIER", "none")
    stack = Stack(tmp_path / "data", team, Ports(gateway=1, nats=2, model=3), lambda name, line: None)
    await stack._leave_out_isolated()
    assert stack.team is not None
    assert (list(stack.team.agents), stack.team.pools) == (["b"], [])
    [note] = stack.notes
    assert holds(note, "a, c", "CADRE_SANDBOX_TIER")


def test_a_team_without_needs_none(tmp_path: Path) -> None:
    assert write_team(tmp_path, dict.fromkeys("abc", "kind: tool_calling")).pools == []


def test_an_agent_that_runs_code_by_a_tool_needs_that_tools_pool(tmp_path: Path) -> None:
    tools = {"a": "python_interpreter", "b": "python_interpreter_gpu", "c": "python_interpreters"}
    team = write_team(tmp_path, {name: f"tools: [{tool}]" for name, tool in tools.items()})
    assert team.pools == ["default", "gpu"]
    assert [card_of(pool, "").name for pool in ("default", "gpu")] == list(tools.values())[:2]
    assert "numpy, pandas." in card_of("default", "numpy, pandas").description


def test_the_command_says_which_tier_is_reached_here() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cadre_sandbox", "--check"], capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        assert done.stdout.removeprefix("tier ").strip() in TIERS
    else:
        assert done.returncode == 2
        assert done.stderr.startswith("cadre: ")
        assert any(tier in done.stderr for tier in TIERS), "the reason names the tiers that were tried"


def test_the_command_says_which_modules_code_could_not_import() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cadre_sandbox", "--check", "--imports", "json,nothing_of_it,xml.dom"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(done.stderr)
    assert done.stdout.splitlines()[1:] == ["lacks nothing_of_it"]


def test_what_the_doctor_makes_of_that() -> None:
    reached = isolation("tier ns", "")
    assert (reached.verdict, "tier ns" in reached.text) == ("ok", True)
    refused = isolation("", "warning\ncadre: code is refused, no isolation is to be had (ns: no)\n")
    assert refused.verdict == "warn"
    assert refused.text.endswith("(ns: no)")
    assert not holds(refused.text, "warning")
    assert isolation("", "").text.endswith("no reason given")

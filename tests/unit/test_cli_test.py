"""`cadre test`: exported runs, decided by the files of a team."""

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cadre.cli.main import group
from cadre.journal.arrivals import Toolset
from cadre.protocol.cards import ToolCard
from cadre.spec.agent import AgentSpec
from cadre.testing import SimulatedRun, call, result
from harness.kept_file import write_kept

TOOLS = '''
from cadre import tool

@tool(read_only=True)
def price(article: str) -> float:
    """Tell what an article costs."""
    raise AssertionError("a kept run calls no tool")
'''
CLERK = """
apiVersion: cadre.dev/v1
kind: Agent
metadata: {name: clerk}
spec:
  description: Tells prices.
  tools: [price]
"""
TEAM = """
apiVersion: cadre.dev/v1
kind: Team
metadata: {name: shop}
spec: {agents: [clerk.yaml], tools: [shop.py]}
"""
PRICE = ToolCard(
    name="price",
    description="Tell what an article costs.",
    input_schema={"type": "object", "properties": {"article": {"type": "string"}}, "required": ["article"]},
)


@pytest.fixture
def team(tmp_path: Path) -> Path:
    """A team, and in its folder `kept` a run of its clerk."""
    for name, text in (("shop.py", TOOLS), ("clerk.yaml", CLERK), ("team.yaml", TEAM)):
        (tmp_path / name).write_text(text)
    sim = SimulatedRun(AgentSpec(name="clerk", description="Tells prices.", tools=["price"]), Toolset({"price": PRICE}))
    sim.begin("What is a lamp?")
    sim.say(call("price", article="lamp"))
    sim.arrive(result("r1_1_0", 20.0, tool="price"))
    sim.say(call("final_answer", answer="20 euros"))
    write_kept(sim, tmp_path / "kept" / "lamp.cadre")
    return tmp_path


def tried(team: Path, *arguments: str) -> Result:
    return CliRunner().invoke(group, ["test", str(team / "kept"), "--team", str(team), *arguments])


def test_a_run_that_goes_as_before(team: Path) -> None:
    done = tried(team)
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "1 kept, 1 decided as before, 0 not")
    (found,) = json.loads(tried(team, "-o", "json").stdout)
    assert (found["id"], found["agent"], found["entries"], found["divergences"]) == ("r1", "clerk", 4, [])


@pytest.mark.parametrize(
    ("file", "was", "now", "told"),
    [
        (
            "clerk.yaml",
            "tools: [price]",
            "tools: [price]\n  approvals: {price: always}",
            "approval.requested",
        ),
        ("shop.py", "article: str", "article: int", "call.refused"),
    ],
)
def test_a_run_that_would_go_otherwise(team: Path, file: str, was: str, now: str, told: str) -> None:
    changed = (team / file).read_text().replace(was, now)
    (team / file).write_text(changed)
    done = tried(team)
    assert (done.exit_code, told in done.stdout, "r1 entry 2" in done.stdout) == (1, True, True), done.output


def test_a_run_that_the_team_says_nothing_about(team: Path) -> None:
    for file in ("clerk.yaml", "team.yaml"):
        (team / file).write_text((team / file).read_text().replace("clerk", "boss"))
    (team / "clerk.yaml").rename(team / "boss.yaml")
    done = tried(team)
    assert done.exit_code == 1, done.output
    (found,) = json.loads(tried(team, "-o", "json").stdout)
    (left,) = found["undecided"]
    assert (left["run"], left["n"]) == ("r1", 1)
    assert "clerk" in left["reason"]


def test_a_folder_without_exported_runs(team: Path) -> None:
    (team / "kept" / "lamp.cadre").unlink()
    done = tried(team)
    assert (done.exit_code, "cadre runs export" in done.stderr) == (2, True)


def test_the_data_folder_of_a_team_is_no_exported_run(team: Path) -> None:
    (team / ".cadre").mkdir()
    (team / "kept" / "lamp.cadre").rename(team / "lamp.cadre")
    done = CliRunner().invoke(group, ["test", str(team), "--team", str(team)])
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "1 kept, 1 decided as before, 0 not"), done.output


@pytest.mark.parametrize(
    ("was", "now", "told"),
    [
        (b'"v": 1', b'"v": 3', "of version 3, newer than version 1"),
        (b'"entries": 4', b'"entries": 5', " 4 entries"),
        (b'"tree": "r1", "entries"', b'"tree": "r2", "entries"', "nothing of run 'r2' itself"),
        (b'{"line": "end"}', b"", "was cut off"),
    ],
)
def test_a_file_that_is_no_whole_export_of_a_version_known_here_harms_no_other(
    team: Path, was: bytes, now: bytes, told: str
) -> None:
    written = gzip.decompress((team / "kept" / "lamp.cadre").read_bytes())
    (team / "kept" / "bad.cadre").write_bytes(gzip.compress(written.replace(was, now, 1)))
    done = tried(team)
    assert done.exit_code == 1
    assert f"bad.cadre: NOT READ\n    {team / 'kept' / 'bad.cadre'} " in done.stdout
    assert told in done.stdout
    assert done.stdout.splitlines()[-1] == "2 kept, 1 decided as before, 1 not"
    bad, lamp = json.loads(tried(team, "-o", "json").stdout)
    assert (told in bad["problem"], lamp["problem"], lamp["entries"]) == (True, "", 4)


def test_tools_that_cannot_be_read(team: Path) -> None:
    (team / "shop.py").write_text("import nothing_of_that_name")
    done = tried(team)
    assert (done.exit_code, "nothing_of_that_name" in done.stderr) == (2, True)

"""Replays and forks of real runs, over HTTP and by the command line."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from harness.command import Commands, only_line
from harness.stack import Gateway
from harness.texts import holds

TEAM = Path(__file__).parent / "features"


@pytest.fixture(scope="module")
def counted(gateway: Gateway) -> str:
    """A run of many steps."""
    run = gateway.submit("solo", "count to 90", max_steps=100)
    assert gateway.finished(run)["output"] == "90 numbers"
    return run


@pytest.fixture(scope="module")
def delegated(gateway: Gateway) -> str:
    run = gateway.submit("one", "begin")
    assert gateway.finished(run)["state"] == "success"
    return run


def fork(gateway: Gateway, run: str, **fields: Any) -> dict[str, Any]:
    answer = gateway.request("POST", f"/v1/runs/{run}/fork", json=fields)
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == f"/v1/runs/{answer.json()['id']}"
    return gateway.finished(answer.json()["id"])


# --- replay


def test_a_tree_is_decided_as_it_was(gateway: Gateway, delegated: str) -> None:
    found = gateway.request("GET", f"/v1/runs/{delegated}/replay").json()
    assert (found["runs"], found["divergences"], found["undecided"]) == (3, [], [])
    assert found["decided"] == found["entries"] > 6
    child = gateway.request("GET", f"/v1/runs/{delegated}_1_0/replay").json()
    assert child["runs"] == 2
    alone = gateway.request("GET", f"/v1/runs/{delegated}/replay", params={"run_only": "true"}).json()
    assert alone["runs"] == 1


def test_replay_by_the_command_line(cadre: Commands, counted: str) -> None:
    done = cadre("replay", counted)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1 run, 182 entries: 182 decided again: no divergence\n"
    as_json = cadre("replay", counted, "-o", "json")
    assert json.loads(as_json.stdout)["divergences"] == []


def test_a_tree_is_verified(cadre: Commands, gateway: Gateway, delegated: str, tmp_path: Path) -> None:
    found = gateway.request("GET", f"/v1/runs/{delegated}/verify").json()
    assert (found["runs"] > 1, found["entries"] > 5, found["broken"]) == (True, True, [])
    verified = cadre("verify", delegated)
    assert (verified.returncode, verified.stderr) == (0, "")
    assert holds(verified.stdout, found["runs"], found["entries"])
    file = tmp_path / "run.cadre"
    assert cadre("runs", "export", delegated, "-o", file).returncode == 0
    assert cadre("verify", "--file", file).returncode == 0
    lines = gzip.decompress(file.read_bytes()).splitlines()
    changed = [line.replace(b'"step":1', b'"step":2', 1) for line in lines]
    assert changed != lines
    file.write_bytes(gzip.compress(b"\n".join(changed)))
    told = cadre("verify", "--file", file, "-o", "json")
    assert told.returncode == 1
    assert delegated in {link["run"] for link in json.loads(told.stdout)["broken"]}


def test_the_last_runs_of_an_agent_become_a_folder_of_tests(
    cadre: Commands, gateway: Gateway, delegated: str, tmp_path: Path
) -> None:
    agent = gateway.run(delegated)["agent"]
    ended = [run["id"] for run in gateway.request("GET", f"/v1/runs?agent={agent}").json()["runs"] if run["ended_at"]]
    folder = tmp_path / "kept" / "of today"
    assert cadre("runs", "export", "--agent", agent, "--last", 2, "-o", folder).returncode == 0
    assert {file.stem for file in folder.iterdir()} == {*ended[:2]}
    named = cadre("runs", "export", delegated, delegated[:20], "-o", tmp_path / "named")
    assert [file.name for file in (tmp_path / "named").iterdir()] == [f"{delegated}.cadre"], named.stderr
    assert cadre("runs", "export", delegated, "-o", folder).stdout.endswith(" bytes)\n")
    assert cadre("runs", "export", delegated, "-o", f"{tmp_path}/one/").returncode == 0
    assert [file.name for file in (tmp_path / "one").iterdir()] == [f"{delegated}.cadre"]
    (tmp_path / "team.yaml").write_text(
        "apiVersion: cadre.dev/v1\nkind: Team\nmetadata: {name: kept}\n"
        f"spec: {{agents: [{TEAM / agent}.yaml], tools: [{TEAM}/tools.py]}}\n"
    )
    told = cadre("test", folder, "--team", tmp_path / "team.yaml", "-o", "json")
    assert {Path(one["file"]).stem for one in json.loads(told.stdout)} == {*ended[:2], delegated}
    assert "name a RUN" in only_line(cadre("runs", "export"), 2)
    assert "stdout" in only_line(cadre("runs", "export", "--agent", agent, "-o", "-"), 2)
    assert holds(only_line(cadre("runs", "export", "--agent", "nobody"), 4), "nobody", "`cadre runs`")


def test_an_exported_run_is_replayed_without_a_gateway(cadre: Commands, delegated: str, tmp_path: Path) -> None:
    """So the next version can be asked about runs of a deployment that has not been upgraded yet."""
    file = tmp_path / "run.cadre"
    assert cadre("runs", "export", delegated, "-o", file).returncode == 0
    done = cadre("replay", "--file", file, CADRE_GATEWAY_URL="http://127.0.0.1:9")
    assert (done.returncode, "3 runs" in done.stdout, "no divergence" in done.stdout) == (0, True, True)

    lines = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
    place = next(n for n, line in enumerate(lines) if b'"call.refused"' in line)
    lines[place] = lines[place].replace(b"it is itself waiting", b"it is itself sleeping")
    file.write_bytes(gzip.compress(b"".join(lines)))
    done = cadre("replay", "--file", file)
    assert done.returncode == 1
    assert "error.message: journaled" in done.stdout
    assert done.stdout.splitlines()[-1].endswith(": 1 divergence")

    file.write_bytes(gzip.compress(b"".join(lines[:-1])))
    assert "was cut off" in only_line(cadre("replay", "--file", file), 2)
    file.write_text("no such thing")
    assert "cannot be read" in only_line(cadre("replay", "--file", file), 2)
    assert "name a RUN" in only_line(cadre("replay"), 2)


# --- fork


def test_a_fork_does_only_what_comes_behind_its_step(gateway: Gateway, counted: str) -> None:
    result = fork(gateway, counted, at=88)
    assert (result["state"], result["output"]) == ("success", "90 numbers")
    assert result["forked_from"] == {"run": counted, "at": 88}
    assert result["usage"]["model_calls"] == 4
    numbers = [step["number"] for step in result["memory"] if step["type"] == "action"]
    assert numbers == list(range(1, 92))
    names = {data["event"]["step"] for name, data in gateway.events(result["id"]) if name == "model.called"}
    assert names == {88, 89, 90, 91}
    assert gateway.request("GET", f"/v1/runs/{result['id']}/replay").json()["divergences"] == []


def test_edits_change_what_the_model_reads(cadre: Commands, counted: str) -> None:
    done = cadre("fork", counted, "--at", 3, "--observation", "2_0=90", "-o", "json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["output"] == "2 numbers"
    assert f"fork of  {counted} at step 3" in cadre("show", result["id"]).stdout


def test_another_task_and_other_arguments(cadre: Commands, gateway: Gateway) -> None:
    given = {"city": "Oslo", "numbers": [1, 2]}
    run = gateway.submit("solo", "work with variables", inputs=given)
    assert gateway.finished(run)["output"] == "Oslo / 3"
    done = cadre("fork", run, "--at", 1, "--input", "city=Rome")
    assert (done.returncode, done.stdout) == (0, "Rome / 3\n"), done.stderr
    done = cadre("fork", run, "--at", 1, "--input", "city=Rome", "--task", "chatty")
    assert done.stdout == "recovered\n", done.stderr


def test_a_run_that_was_out_of_steps_goes_on(cadre: Commands, gateway: Gateway) -> None:
    run = gateway.submit("solo", "never end", max_steps=2)
    assert gateway.finished(run)["state"] == "max_steps_error"
    line = only_line(cadre("fork", run, "--at", 3), 2)
    assert "max_steps" in line
    done = cadre("fork", run, "--at", 3, "--max-steps", 4, "--budget-steps", 9, "-o", "json")
    assert done.returncode == 7, done.stderr
    result = json.loads(done.stdout)
    assert (result["step"], result["budget"]) == (4, {"steps": 9})


def test_a_run_out_of_steps_is_gone_on_with(gateway: Gateway, cadre: Commands, counted: str) -> None:
    run = gateway.submit("solo", "count to 60", max_steps=58)
    assert gateway.finished(run)["state"] == "max_steps_error"
    done = cadre("resume", run, "--steps", 10, "-o", "json")
    result = json.loads(done.stdout)
    assert (done.returncode, result["output"]) == (0, "60 numbers"), done.stderr
    assert result["forked_from"] == {"run": run, "at": 59}
    answer = gateway.request("POST", f"/v1/runs/{counted}/resume", json={})
    assert (answer.status_code, answer.json()["code"]) == (422, "cannot-fork")
    assert counted in answer.json()["detail"]


def test_a_child_is_forked_as_a_run_of_its_own(gateway: Gateway, delegated: str) -> None:
    child = f"{delegated}_1_0"
    result = fork(gateway, child, at=2)
    assert (result["agent"], result["parent"], result["state"]) == ("two", None, "success")
    assert result["children"] == []
    first = gateway.run(child, full="true")["memory"][0]
    assert result["memory"][0] == first


@pytest.mark.parametrize(
    ("fields", "status", "told"),
    [
        ({"at": 99}, 422, "1 to 91"),
        ({"at": 0}, 422, "at"),
        ({}, 422, "at"),
        ({"at": 2, "observations": {"2_0": "x"}}, 422, "'2_0'"),
        ({"at": 2, "max_steps": 1}, 422, "give at least 2"),
        ({"at": 2, "task": " "}, 422, "task is empty"),
        ({"at": 2, "agent": "one"}, 422, "unknown key 'agent'"),
    ],
)
def test_what_cannot_be_forked(gateway: Gateway, counted: str, fields: dict[str, Any], status: int, told: str) -> None:
    answer = gateway.request("POST", f"/v1/runs/{counted}/fork", json=fields)
    assert (answer.status_code, told in answer.json()["detail"]) == (status, True), answer.text


def test_a_run_at_work_can_be_forked_as_far_as_it_has_come(gateway: Gateway) -> None:
    run = gateway.submit("solo", "take long")
    gateway.wait_for(run, "tool.called")
    early = gateway.request("POST", f"/v1/runs/{run}/fork", json={"at": 2})
    assert (early.status_code, early.json()["code"]) == (409, "cannot-fork")
    assert "1 to 1" in early.json()["detail"]
    assert fork(gateway, run, at=1, task="chatty")["output"] == "recovered"
    gateway.request("POST", f"/v1/runs/{run}/cancel", json={})

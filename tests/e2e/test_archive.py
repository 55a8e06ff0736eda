"""`cadre runs remove|export|import` as their users have them, on a team at work."""

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.provision import provision
from cadre.settings import Settings
from harness.command import Commands, commands_of, only_line
from harness.patience import eventually, patience
from harness.stack import Gateway, Stack
from harness.texts import holds

TEAM = Path(__file__).parent / "team"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="module")
def cadre(stack: Stack, gateway: Gateway, folder: Path) -> Commands:
    return commands_of(stack, folder)


@pytest.fixture(scope="module")
def elsewhere(stack: Stack, gateway: Gateway, folder: Path) -> dict[str, str]:
    """Environment of a command that talks to another deployment."""
    other = stack.add("other-gateway", "cadre_gateway", CADRE_PREFIX="elsewhere")
    return {"CADRE_GATEWAY_URL": other.url}


@pytest.fixture
def run(stack: Stack, gateway: Gateway, tmp_path: Path) -> str:
    """A run that has ended, with two runs below it."""
    run = gateway.submit("boss", f"delegate: use effect {tmp_path / 'marks'} 0.01")
    assert gateway.finished(run)["state"] == "success"
    return run


def shown(cadre: Commands, run: str, **environment: str) -> Any:
    done = cadre("show", run, "-o", "json", **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def told(gateway: Gateway, run: str) -> list[tuple[str, Any]]:
    return [(name, data | {"seq": 0}) for name, data in gateway.events(run) if name != "delta"]


def test_the_list_is_what_it_was(cadre: Commands, run: str) -> None:
    for arguments in (["runs"], ["runs", "--agent", "boss"], ["runs", "--state", "success", "--limit", "5"]):
        done = cadre(*arguments)
        assert done.returncode == 0, done.stderr
        assert run in done.stdout
    assert run in [one["id"] for one in json.loads(cadre("runs", "-o", "json").stdout)]
    assert run not in cadre("runs", "--agent", "nobody").stdout
    assert holds(only_line(cadre("runs", "--agent", "boss", "rm", run), 2), "--agent", "`rm`")


def test_exported_erased_imported_it_is_the_same(gateway: Gateway, cadre: Commands, folder: Path, run: str) -> None:
    before, events = shown(cadre, run), told(gateway, run)
    done = cadre("runs", "export", run)
    assert done.returncode == 0, done.stderr
    assert f"{run} exported to {run}.cadre" in done.stdout
    file = folder / f"{run}.cadre"
    header = json.loads(gzip.decompress(file.read_bytes()).splitlines()[0])
    assert (header["format"], header["v"], header["tree"], header["runs"]) == ("cadre-run", 1, run, 3)
    assert [one.name for one in folder.iterdir() if "part" in one.name] == []

    assert "is here already" in only_line(cadre("runs", "import", file), 1)
    done = cadre("runs", "rm", run)
    assert (done.returncode, done.stdout) == (0, f"{run} erased (3 runs)\n")
    only_line(cadre("show", run), 4)
    only_line(cadre("runs", "rm", run), 4)
    assert run not in cadre("runs").stdout

    done = cadre("runs", "import", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{run} imported (3 runs, ")
    assert shown(cadre, run) == before
    assert told(gateway, run) == events
    assert run in cadre("runs").stdout
    replay = gateway.request("GET", f"/v1/runs/{run}/replay")
    assert replay.status_code == 200, replay.text
    # What came back behaves like any other run.
    assert cadre("cancel", run).stdout == f"{run} success\n"
    assert cadre("runs", "rm", run).returncode == 0


@pytest.mark.parametrize("tool", ["look", "effect"])
def test_a_run_at_work_is_erased_only_by_force(
    stack: Stack, gateway: Gateway, cadre: Commands, tmp_path: Path, tool: str
) -> None:
    """And what its tool says when it is done is removed as well."""
    file = tmp_path / "marks"
    run = gateway.submit("boss", f"delegate: use {tool} {file} 8")
    eventually(file.exists, what="the tool has begun")
    child = gateway.run(run)["children"][0]["id"]
    assert "--force" in only_line(cadre("runs", "rm", run), 1)
    assert "has not ended" in only_line(cadre("runs", "export", run), 1)
    assert f"erase {run}" in only_line(cadre("runs", "rm", child), 2)
    done = cadre("runs", "rm", run, "--force")
    assert done.returncode == 0, done.stderr
    only_line(cadre("show", run), 4)
    only_line(cadre("show", child), 4)
    # The team is not the worse for it.
    later = gateway.submit("boss", f"delegate: use look {tmp_path / 'more'} 0.01")
    assert gateway.finished(later)["state"] == "success"
    assert run not in cadre("runs").stdout
    assert asyncio.run(remains(stack, run)) == []


async def remains(stack: Stack, run: str) -> list[str]:
    """Return what there is of a run once its last tool has said its last word."""
    nc = await connect(Settings(nats_url=stack.nats.url), "test")
    topology = await provision(nc, Settings(nats_url=stack.nats.url))
    stream = topology.stream_of(run)
    left: list[str] = []
    quiet = 0
    async with asyncio.timeout(patience()):
        while quiet < 20:  # longer than the tool is at work
            await asyncio.sleep(0.5)
            found = [await jetstream.last(nc, stream, one) for one in topology.subjects_of_tree(run)]
            left = [held.subject for held in found if held is not None]
            quiet = 0 if left else quiet + 1
    await nc.close()
    return left


def test_several_at_once(gateway: Gateway, cadre: Commands, tmp_path: Path) -> None:
    runs = [gateway.submit("helper", "hello") for _ in range(2)]
    for run in runs:
        gateway.finished(run)
    done = cadre("runs", "rm", runs[0], "f" * 32, runs[1], runs[0])
    assert done.stdout.splitlines() == [f"{run} erased (1 run)" for run in runs]
    assert holds(only_line(done, 4), "f" * 32, "`cadre runs`")


def test_files_that_are_no_runs(cadre: Commands, folder: Path, run: str, tmp_path: Path) -> None:
    whole = tmp_path / "whole.cadre"
    assert cadre("runs", "export", run, "-o", whole).returncode == 0
    half, foreign = tmp_path / "half.cadre", tmp_path / "foreign.cadre"
    half.write_bytes(whole.read_bytes()[:-100])
    foreign.write_text("dear diary")
    assert "copy it again" in only_line(cadre("runs", "import", half), 2)
    assert "no exported run" in only_line(cadre("runs", "import", foreign), 2)
    assert "No such file" in only_line(cadre("runs", "import", tmp_path / "nowhere"), 2)
    assert cadre("runs", "export", run, "-o", tmp_path / "made" / "x").returncode == 0
    assert (tmp_path / "made" / "x").is_file(), "with its folder"
    assert "whole" in only_line(cadre("runs", "export", run, "-o", whole / "x"), 2)
    piped = cadre("runs", "export", "f" * 32, "-o", "-")
    assert (piped.stdout, piped.returncode) == ("", 4)


def test_a_file_that_was_changed_is_imported_only_when_that_is_asked_for(
    cadre: Commands, folder: Path, elsewhere: dict[str, str], run: str
) -> None:
    file = folder / "changed.cadre"
    assert cadre("runs", "export", run, "-o", file).returncode == 0
    text = gzip.decompress(file.read_bytes())
    assert b'"task":"delegate: use' in text
    file.write_bytes(gzip.compress(text.replace(b'"task":"delegate: use', b'"task":"delegate: bar')))
    assert cadre("verify", "--file", file).returncode == 1
    only_line(cadre("runs", "import", file, **elsewhere), 2)
    assert run not in cadre("runs", **elsewhere).stdout
    done = cadre("runs", "import", "--unverified", file, **elsewhere)
    assert done.returncode == 0, done.stderr
    assert cadre("verify", run, **elsewhere).returncode == 1

"""Tests of which gateway a command asks in a folder: never that of another folder's `cadre up`."""

import threading
from pathlib import Path

import pytest

from cadre.adapters import local_stack
from cadre.adapters.local_stack import StackState
from cadre.client import Unreachable
from cadre.client.transport import gateway_url
from cadre.errors import ExitCode
from unit.played_gateway import cadre

DEFAULT = "http://127.0.0.1:8080"
OWN = "http://127.0.0.1:4711"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("CADRE_GATEWAY_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_folder_without_a_stack_asks_at_the_default_address(folder: Path) -> None:
    assert gateway_url() == DEFAULT


def test_a_team_whose_stack_does_not_run_asks_nobody(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "team.yaml").touch()
    with pytest.raises(Unreachable, match=r"no `cadre up` runs here.*CADRE_GATEWAY_URL"):
        gateway_url()
    for words in (("run", "boss", "Go."), ("ps",), ("cancel", "@last")):
        done = cadre(*words)
        assert (done.exit_code, "the gateway of this folder is not ready" in done.stderr) == (5, True)
    assert int(ExitCode.UNREACHABLE) == 5
    monkeypatch.setenv("CADRE_GATEWAY_URL", DEFAULT)
    assert gateway_url() == DEFAULT


def test_nobody_is_asked_while_the_stack_starts_and_behind_its_end(folder: Path) -> None:
    data, ready, over = local_stack.default_data(), threading.Event(), threading.Event()

    def up() -> None:
        with local_stack.locked(data):
            ready.set()
            over.wait(30)

    stack = threading.Thread(target=up)
    stack.start()
    assert ready.wait(30)
    try:
        with pytest.raises(Unreachable, match=r"its `cadre up` is starting"):
            gateway_url()
        local_stack.write_state(data, StackState(gateway=OWN, nats="", pids={}))
        assert gateway_url() == OWN
        local_stack.write_ports(data, local_stack.Ports(gateway=4711))
    finally:
        over.set()
        stack.join()
    with pytest.raises(Unreachable, match=r"no `cadre up` runs here"):
        gateway_url()


def test_a_subfolder_asks_at_the_nearest_stack_above(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a folder between them comes first, ready or not; `cadre up` itself stays in its own folder."""
    far, near, deep = folder, folder / "team", folder / "team" / "prompts" / "old"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert gateway_url() == DEFAULT
    with local_stack.locked(far / ".cadre"):
        local_stack.write_state(far / ".cadre", StackState(gateway=OWN, nats="", pids={}))
        assert gateway_url() == OWN
        (near / "team.yaml").touch()
        with pytest.raises(Unreachable, match=rf"the gateway of {near} is not ready: no `cadre up` runs there"):
            gateway_url()
    assert local_stack.own_data() == Path(".cadre")
    assert not (deep / ".cadre").exists()

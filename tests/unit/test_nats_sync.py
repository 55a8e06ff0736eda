"""CADRE_NATS_SYNC: what is taken, what becomes of it in the server's file, and who is informed."""

import subprocess
from pathlib import Path

import pytest

from cadre.adapters.local_stack import Ports
from cadre.cli.team.doctor import disk
from cadre.errors import SettingError
from cadre.local import nats_server
from cadre.local.processes import Stack, advice
from cadre.settings import read_nats_sync
from harness.nats_server import nats_binary


def test_nothing_that_was_acknowledged_may_be_lost_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CADRE_NATS_SYNC", raising=False)
    assert read_nats_sync() == "always"


@pytest.mark.parametrize("text", ["always", "120s", "10s", "250ms"])
def test_the_server_takes_what_the_setting_takes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    monkeypatch.setenv("CADRE_NATS_SYNC", text)
    file = tmp_path / "nats.conf"
    nats_server.write_config(file, tmp_path / 'with "quotes"', 4222, read_nats_sync())
    assert f'sync_interval: "{text}"' in file.read_text()
    subprocess.run([nats_binary(), "-t", "-c", file], check=True, capture_output=True)


@pytest.mark.parametrize("text", ["2m", "10", "0s", "-1s", "never", "Always", "1.5s", "10s "])
def test_anything_else_is_refused_with_what_to_write(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("CADRE_NATS_SYNC", text)
    with pytest.raises(SettingError, match=r"CADRE_NATS_SYNC=.*must be `always`, or .* such as 10s or 500ms"):
        read_nats_sync()


@pytest.mark.parametrize(("sync", "warnings"), [("always", []), ("10s", ["10s"])])
def test_whoever_starts_a_stack_is_told_what_a_power_cut_may_take(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sync: str, warnings: list[str]
) -> None:
    monkeypatch.setenv("CADRE_NATS_SYNC", sync)
    monkeypatch.setenv("CADRE_MODEL_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("CADRE_MODEL_KEY", "key")
    stack = Stack(tmp_path, None, Ports(gateway=1, nats=2, model=3), lambda name, line: None)
    lines = advice(stack)
    assert len(lines) == len(warnings)
    assert all(text in line for text, line in zip(warnings, lines, strict=True))


@pytest.mark.parametrize(
    ("sync", "copies", "verdict", "named"),
    [
        ("always", 1, "ok", "always"),
        ("always", 3, "ok", "always"),
        ("10ms", 1, "warn", "10ms"),
        ("100ms", 2, "warn", "100ms"),
        ("100ms", 3, "ok", "100ms"),
        ("", 1, "warn", "http://nats.example:8222/jsz"),
        ("", 3, "warn", "http://nats.example:8222/jsz"),
    ],
)
def test_the_doctor_says_what_a_loss_of_power_takes(sync: str, copies: int, verdict: str, named: str) -> None:
    found = disk(sync, copies, "nats.example")
    assert found.verdict == verdict
    assert named in found.text

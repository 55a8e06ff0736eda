"""The environment: what its page says of it, and who belongs to which NATS server."""

from pathlib import Path

import msgspec
import pytest

from cadre.adapters import local_stack
from cadre.errors import SettingError
from cadre.settings import Settings, read_model_settings, read_settings
from cadre_gateway.wiring import read_console_settings

PAGE = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()


@pytest.mark.parametrize("field", [field.name for field in msgspec.structs.fields(Settings)])
def test_every_variable_is_documented(field: str) -> None:
    assert f"`CADRE_{field.upper()}`" in PAGE


@pytest.mark.parametrize("field", ["shards", "replicas", "concurrency", "drain_seconds", "log_level", "prefix"])
def test_the_documented_default_is_the_real_one(field: str) -> None:
    [row] = [line for line in PAGE.splitlines() if line.startswith(f"| `CADRE_{field.upper()}` |")]
    default = getattr(Settings(), field)
    assert row.split("|")[2].strip(" `") == (f"{default:g}" if isinstance(default, float) else str(default))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, without any NATS server named."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CADRE_NATS_URL", "")
    monkeypatch.delenv("CADRE_NATS_URL")
    return tmp_path / ".cadre"


RUNNING = local_stack.StackState(gateway="http://127.0.0.1:1", nats="nats://127.0.0.1:2", pids={})


def test_a_service_belongs_to_the_cadre_up_of_its_folder(folder: Path) -> None:
    with local_stack.locked(folder):
        local_stack.write_state(folder, RUNNING)
        local_stack.find_nats()
        assert read_settings().nats_url == RUNNING.nats


def test_unless_it_is_told_otherwise(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CADRE_NATS_URL", "nats://127.0.0.1:3")
    with local_stack.locked(folder):
        local_stack.write_state(folder, RUNNING)
        local_stack.find_nats()
    assert read_settings().nats_url == "nats://127.0.0.1:3"


def test_a_cadre_up_that_was_killed_has_nobody(folder: Path) -> None:
    with local_stack.locked(folder):
        local_stack.write_state(folder, RUNNING)
        left_behind = (folder / "up.json").read_bytes()
    (folder / "up.json").write_bytes(left_behind)
    local_stack.find_nats()
    assert read_settings().nats_url == Settings().nats_url


def test_a_model_endpoint_that_is_no_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CADRE_MODEL_URL", "user:hidden@foo")
    with pytest.raises(SettingError, match=r"^CADRE_MODEL_URL=foo\b.* http://"):
        read_model_settings()


@pytest.mark.parametrize("url", ["traces.example/{trace_id}", "https://traces.example/", "javascript:{trace_id}"])
def test_an_address_of_traces_that_leads_nowhere(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CADRE_TRACE_URL", url)
    with pytest.raises(SettingError, match=r"CADRE_TRACE_URL is .*\{trace_id\}"):
        read_console_settings()

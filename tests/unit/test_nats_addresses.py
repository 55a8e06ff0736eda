"""CADRE_NATS_URL: what may stand there, and that no one learns its password."""

import pytest

from cadre.errors import SettingError
from cadre.protocol.nats_users import addresses, redacted
from cadre.settings import read_settings


@pytest.mark.parametrize(
    ("text", "whole", "shown"),
    [
        ("nats://127.0.0.1:4222", ["nats://127.0.0.1:4222"], "nats://127.0.0.1:4222"),
        ("somewhere:4222", ["nats://somewhere:4222"], "nats://somewhere:4222"),
        ("tls://me:secret@host:1", ["tls://me:secret@host:1"], "tls://host:1"),
        ("nats://a:1, nats://token@b:2", ["nats://a:1", "nats://token@b:2"], "nats://a:1,nats://b:2"),
        ("nats://[::1]:4222", ["nats://[::1]:4222"], "nats://[::1]:4222"),
    ],
)
def test_addresses(text: str, whole: list[str], shown: str) -> None:
    assert addresses(text) == whole
    assert redacted(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1:4222",
        "foo://x",
        "nats://",
        "nats://h:port",
        "nats://h:99999",
        "nats://a:1,,nats://b:2",
    ],
)
def test_what_is_no_address_is_refused_at_once(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CADRE_NATS_URL", text)
    with pytest.raises(SettingError, match="CADRE_NATS_URL"):
        read_settings()


def test_a_refused_address_is_not_repeated() -> None:
    with pytest.raises(SettingError) as refused:
        addresses("http://me:secret@host")
    assert "secret" not in str(refused.value)

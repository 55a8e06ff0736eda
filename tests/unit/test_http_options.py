"""HTTP clients bypass proxies for this machine, and report a variable that cannot be used."""

import importlib.util
from pathlib import Path

import httpx2
import pytest

from cadre.adapters.addresses import is_loopback
from cadre.adapters.http_options import http_options, tls_context
from cadre.errors import SettingError

VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


HERE = (
    "http://127.0.0.1:8080/v1",
    "http://localhost:8080",
    "http://LOCALHOST.",
    "http://[::1]:80",
    "http://127.3.2.1",
    "http://[::ffff:127.0.0.1]/",
    "http://gateway.localhost",
    "http://0.0.0.0:1234",
    "https://localhost:8443",
)
ELSEWHERE = (
    "http://example.org",
    "http://127.0.0.1.example.org",
    "http://10.0.0.1:80",
    "http://localhost.org",
)


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("url", HERE)
def test_this_machine_is_asked_without_a_proxy(monkeypatch: pytest.MonkeyPatch, variable: str, url: str) -> None:
    monkeypatch.setenv(variable, "socks5://127.0.0.1:9")
    options = http_options(url)
    assert (options["proxy"], options["trust_env"]) == (None, False)


@pytest.mark.parametrize("url", ELSEWHERE)
def test_others_are_asked_by_the_proxy(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("HTTP_PROXY", "proxy.example:3128")
    assert http_options(url)["proxy"] == "http://proxy.example:3128"
    monkeypatch.setenv("NO_PROXY", "example.org,10.0.0.1,localhost.org")
    assert http_options(url)["proxy"] is None


def test_a_proxy_is_for_its_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://s.example:1")
    assert http_options("http://example.org")["proxy"] is None
    monkeypatch.setenv("ALL_PROXY", "http://a.example:2")
    assert http_options("http://example.org")["proxy"] == "http://a.example:2"
    assert http_options("https://example.org")["proxy"] == "http://s.example:1"


@pytest.mark.parametrize("proxy", ["nonsense://x:1", "http://", "http://[", "socks4://x:1"])
def test_a_proxy_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(SettingError, match="ALL_PROXY="):
        http_options("https://example.org")


@pytest.mark.skipif(importlib.util.find_spec("socksio") is not None, reason="SOCKS can be used here")
def test_a_socks_proxy_without_its_package_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://anna:secret@x.example:1080")
    with pytest.raises(SettingError, match=r"ALL_PROXY=socks5://x\.example:1080") as raised:
        http_options("https://example.org")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_certificates_that_cannot_be_read_are_named_where_they_are_needed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / "missing"))
    assert http_options("http://127.0.0.1:80")["verify"] is False
    http_options("http://example.org", follows=True)
    if variable == "SSL_CERT_FILE":
        with pytest.raises(SettingError, match=r"SSL_CERT_FILE=.*missing"):
            http_options("https://example.org")
        with pytest.raises(SettingError, match="SSL_CERT_FILE="):
            tls_context()


def test_a_client_can_be_made_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://anna:secret@proxy.example:3128")
    for url in (*HERE, *ELSEWHERE, "https://example.org"):
        httpx2.Client(**http_options(url)).close()


@pytest.mark.parametrize(
    ("host", "here"), [("127.evil.example", False), ("127.0.0.1", True), ("::1", True), ("0.0.0.0", False)]
)
def test_what_only_this_machine_reaches(host: str, here: bool) -> None:
    assert is_loopback(host) is here

"""Tests of what `cadre doctor` says of a model endpoint, asked over HTTP."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cadre.cli.team.doctor import Finding, model, provider
from harness.oidc_provider import OidcProviderServer
from harness.texts import holds


class Endpoint(BaseHTTPRequestHandler):
    """Refuses any key but `right`; has one model."""

    def do_GET(self) -> None:
        right = self.headers["Authorization"] == "Bearer right"
        data = json.dumps({"data": [{"id": "m-1"}]} if right else {}).encode()
        self.send_response(200 if right else 401)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """The test's output is not the place for an access log."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()
        thread.join()


def findings(monkeypatch: pytest.MonkeyPatch, url: str, key: str = "right", name: str = "m-1") -> list[Finding]:
    for variable, value in (("CADRE_MODEL_URL", url), ("CADRE_MODEL_KEY", key), ("CADRE_MODEL", name)):
        monkeypatch.setenv(variable, value)
    return list(model())


def test_an_endpoint_with_the_model(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    assert findings(monkeypatch, url) == [Finding("ok", f"the model endpoint {url} answers")]


def test_a_password_is_not_shown(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    [finding] = findings(monkeypatch, url.replace("://", "://me:secret@"))
    # What the URL names is sent instead of the key, which this endpoint wants.
    assert finding.text.startswith(f"the model endpoint {url} refuses")


def test_an_endpoint_that_refuses_the_key(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    [finding] = findings(monkeypatch, url, key="wrong")
    assert finding.verdict == "fail"
    assert "refuses the key (401): see CADRE_MODEL_KEY" in finding.text
    assert "wrong" not in finding.text


def test_a_model_that_the_endpoint_lacks_or_nobody_named(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    [_, lacking] = findings(monkeypatch, url, name="m-2")
    assert lacking.verdict == "warn"
    assert holds(lacking.text, "CADRE_MODEL=m-2", "m-1")
    [_, unnamed] = findings(monkeypatch, url, name="")
    assert (unnamed.verdict, unnamed.text.split()[0]) == ("warn", "CADRE_MODEL")


@pytest.mark.parametrize("wrong", ["nonsense", "ftp://somewhere/v1"])
def test_what_is_no_url(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    [finding] = findings(monkeypatch, wrong)
    assert finding.verdict == "fail"
    assert holds(finding.text, f"CADRE_MODEL_URL={wrong} ", "https://")


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    server = OidcProviderServer()
    yield server.issuer
    server.close()


RIGHT = {
    "CADRE_AUTH": "keys,oidc",
    "CADRE_OIDC_CLIENT_ID": "cadre",
    "CADRE_OIDC_GRANTS": '{"a": {"roles": ["admin"]}}',
}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({}, ["ok", "lists 1 key"]),
        (
            {"CADRE_OIDC_CLIENT_ID": "", "CADRE_OIDC_AUDIENCE": "x"},
            ["warn", "CADRE_OIDC_CLIENT_ID"],
        ),
        ({"CADRE_OIDC_GRANTS": ""}, ["fail", "CADRE_OIDC_GRANTS "]),
        ({"CADRE_OIDC_GRANTS": "nowhere.yaml"}, ["fail", "nowhere.yaml: cannot be read"]),
        (
            {"CADRE_OIDC_ISSUER": "http://127.0.0.1:1"},
            ["fail", "http://127.0.0.1:1/.well-known"],
        ),
        ({"CADRE_OIDC_ISSUER": "{issuer}/"}, ["fail", "as CADRE_OIDC_ISSUER"]),
        ({"CADRE_OIDC_ISSUER": "id.example.com"}, ["fail", "https://"]),
        ({"CADRE_AUTH": "oidc,off"}, ["fail", "CADRE_AUTH=off: "]),
    ],
)
async def test_what_is_wrong_with_a_provider_is_named(
    monkeypatch: pytest.MonkeyPatch, issuer: str, wrong: dict[str, str], says: list[str]
) -> None:
    for variable, value in {"CADRE_OIDC_ISSUER": issuer, **RIGHT, **wrong}.items():
        monkeypatch.setenv(variable, value.replace("{issuer}", issuer))
    last = (await provider())[-1]
    assert last.verdict == says[0]
    assert says[1] in last.text


async def test_a_gateway_that_asks_no_provider_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CADRE_AUTH", "keys")
    assert await provider() == []


async def test_packages_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch, issuer: str) -> None:
    for variable, value in {"CADRE_OIDC_ISSUER": issuer, **RIGHT}.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr("cadre.adapters.oidc.find_spec", lambda _: None)
    [finding] = await provider()
    assert finding.verdict == "fail"
    assert "pip install 'cadre-agents[oidc]'" in finding.text

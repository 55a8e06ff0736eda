"""The operator finds the API server as every client in a pod does."""

import kopf
import pytest

from cadre_operator.cluster import login


@pytest.mark.parametrize(
    ("host", "port", "server"),
    [
        ("10.96.0.1", "443", "https://10.96.0.1:443"),
        ("fd00::1", "6443", "https://[fd00::1]:6443"),
        ("10.96.0.1", "", "https://10.96.0.1:443"),
        ("", "", "https://kubernetes.default.svc"),
    ],
)
def test_a_pod_needs_no_name_server(monkeypatch: pytest.MonkeyPatch, host: str, port: str, server: str) -> None:
    info = kopf.ConnectionInfo(server="https://kubernetes.default.svc", token="t")
    monkeypatch.setattr(kopf, "login_with_service_account", lambda **_: info)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    found = login()
    assert found is not None
    assert (found.server, found.token) == (server, "t")

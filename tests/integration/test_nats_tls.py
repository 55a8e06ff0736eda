"""NATS behind TLS: with a certificate authority of one's own, a client certificate, and without what is needed."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.streams.provision import provision
from cadre.errors import SettingError
from cadre.settings import Settings
from harness.nats_server import NatsServer
from harness.patience import patience

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the program openssl")

TLS = """
tls {{ cert_file: "{0}/server.crt", key_file: "{0}/server.key", ca_file: "{0}/ca.crt", verify: {1} }}
"""


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=patience())


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate authority, and what it has signed for a server and a client."""
    folder = tmp_path_factory.mktemp("papers")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    # What Python asks of an authority since 3.13.
    usage = ("-addext", "keyUsage=critical,keyCertSign")
    openssl(folder, "req", "-x509", *curve, *usage, "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.crt")
    for name in ("server", "client"):
        openssl(folder, "req", *curve, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        signed = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
        openssl(folder, "x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.crt")
    return folder


@pytest.fixture(params=["false", "true"], ids=["server only", "both sides"])
def server(request: pytest.FixtureRequest, papers: Path, tmp_path: Path) -> Iterator[NatsServer]:
    with NatsServer(tmp_path, more=TLS.format(papers, request.param)) as one:
        yield one


def settings(server: NatsServer, papers: Path, **more: Any) -> Settings:
    return Settings(nats_url=server.url, shards=1, nats_tls_ca=str(papers / "ca.crt"), **more)


async def test_a_service_works_over_it(server: NatsServer, papers: Path) -> None:
    own = {"nats_tls_cert": str(papers / "client.crt"), "nats_tls_key": str(papers / "client.key")}
    with_papers = settings(server, papers, **own)
    nc = await connect(with_papers, "test", wait=False)
    assert (await provision(nc, with_papers)).shards == 1
    await nc.close()


async def test_an_authority_that_nobody_knows_is_not_trusted(server: NatsServer) -> None:
    with pytest.raises(SettingError, match=r"certificate .* is not trusted .*CADRE_NATS_TLS_CA"):
        await connect(Settings(nats_url=server.url), "test")


async def test_half_a_pair_is_refused(papers: Path) -> None:
    half = Settings(nats_tls_cert=str(papers / "client.crt"))
    with pytest.raises(SettingError, match="go together"):
        await connect(half, "test")


async def test_files_that_hold_no_certificate_are_named(papers: Path) -> None:
    with pytest.raises(SettingError, match=r"CADRE_NATS_TLS_CA=.*names: no certificate"):
        await connect(Settings(nats_tls_ca=str(papers / "names")), "test")

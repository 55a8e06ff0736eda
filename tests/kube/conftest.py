"""An API server, kubectl before it, and the operator as a process."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from cadre.deploy.k8s.object_kinds import definitions
from harness.patience import patience
from kube.api_server import ApiServer

Kubectl = Callable[..., Awaitable[str]]


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiServer]:
    async with ApiServer(tmp_path) as server:
        for one in definitions():
            server.store.create(server.resource(one["kind"]), "", one, "test")
        (tmp_path / "kubeconfig").write_text(server.kubeconfig())
        yield server


@pytest.fixture
def kubectl(api: ApiServer, tmp_path: Path) -> Kubectl:
    """Runs kubectl, with `given` as its input; what it prints."""
    binary = shutil.which("kubectl")
    if binary is None:
        pytest.skip("kubectl is not installed (Debian: kubernetes-client)")

    async def run(*arguments: str, given: str = "") -> str:
        options = ["--kubeconfig", str(tmp_path / "kubeconfig"), "--cache-dir", str(tmp_path / "cache")]
        pipe = subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            binary, *options, *arguments, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT
        )
        out, _ = await asyncio.wait_for(process.communicate(given.encode()), patience())
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, arguments, out.decode())
        return out.decode()

    return run


class OperatorProcess:
    """`cadre operator` before the API server."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, *arguments: str) -> None:
        environment = {**os.environ, "KUBECONFIG": str(self._folder / "kubeconfig"), "CADRE_PORT": "0"}
        with (self._folder / "operator.log").open("a") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "cadre_operator", "-f", str(self._folder / "values.yaml"), *arguments),
                env=environment,
                stdout=log,
                stderr=log,
            )

    async def stop(self) -> int:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.terminate()
        return await asyncio.wait_for(self._process.wait(), patience())

    @property
    def log(self) -> str:
        return (self._folder / "operator.log").read_text()


@pytest.fixture
async def stopped(api: ApiServer, tmp_path: Path) -> AsyncIterator[OperatorProcess]:
    """The operator before its start."""
    (tmp_path / "values.yaml").write_text(
        "image: cadre:test\nkeda: false\nmodel: {url: https://models.example/v1, name: m}\n"
    )
    one = OperatorProcess(tmp_path)
    yield one
    if one._process is not None:
        await one.stop()
        print(one.log)  # shown when the test has failed


@pytest.fixture
async def operator(stopped: OperatorProcess) -> OperatorProcess:
    await stopped.start()
    return stopped

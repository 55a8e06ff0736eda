"""A whole deployment on free ports, every service a process that a test can kill, pause and start again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2

from cadre.service.platform import Platform, open_platform
from cadre.settings import Settings
from harness import forks
from harness.guard import Guard
from harness.nats_server import NatsServer, free_port
from harness.patience import eventually, patience


class Service:
    """One service process. Its log is kept for the message of a failing test."""

    def __init__(self, name: str, arguments: list[str], environment: dict[str, str], folder: Path) -> None:
        self.name = name
        self.group: int | None = None
        """Process group that the process joins."""
        self.port = free_port()
        self._arguments = arguments
        self._environment = {**environment, "CADRE_PORT": str(self.port)}
        self.log = folder / f"{name}.log"
        self.process: forks.Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, *, wait: bool = True) -> None:
        self.process = forks.start(self._arguments, self._environment, self.log, self.group)
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        def ready() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, f"{self.name} died:\n{self.log.read_text()}"
            with contextlib.suppress(httpx2.HTTPError):
                return httpx2.get(f"{self.url}/readyz", timeout=2, verify=False).status_code == 200
            return False

        eventually(ready, what=f"{self.name} is ready")

    def kill(self) -> None:
        """kill -9"""
        self.signal(signal.SIGKILL)
        assert self.process is not None
        self.process.wait()

    def terminate(self) -> int:
        self.signal(signal.SIGTERM)
        assert self.process is not None
        return self.process.wait(timeout=patience())

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid


class Stack:
    """NATS, and services added one by one. Use it as a context manager."""

    def __init__(self, folder: Path, *, nats: str = "", nats_port: int = 0) -> None:
        """`nats` goes into the server's configuration as it is."""
        self.folder = folder
        self.nats = NatsServer(folder, more=nats, port=nats_port)
        self.services: dict[str, Service] = {}
        self._guard: Guard | None = None
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("CADRE_")},
            "CADRE_NATS_URL": self.nats.url,
            "CADRE_SHARDS": "2",
            "CADRE_DRAIN_SECONDS": "5",
            "PYTHONUNBUFFERED": "1",
        }

    def __enter__(self) -> Stack:
        self._guard = Guard()
        self.nats.group = self._guard.group
        self.nats.start()
        return self

    def __exit__(self, *_: object) -> None:
        running = [service for service in self.services.values() if service.is_running]
        for service in running:
            service.signal(signal.SIGCONT)
            service.signal(signal.SIGTERM)
        for service in running:
            assert service.process is not None
            try:
                service.process.wait(timeout=patience(20))
            except subprocess.TimeoutExpired:
                service.kill()
        self.nats.stop()
        if self._guard is not None:
            self._guard.close()

    def add(self, name: str, *arguments: str | Path, start: bool = True, **environment: str) -> Service:
        """A service `python -m arguments…`, or a script; started and waited for unless asked otherwise."""
        service = Service(name, [str(a) for a in arguments], {**self.environment, **environment}, self.folder)
        service.group = self._guard.group if self._guard is not None else None
        self.services[name] = service
        if start:
            service.start()
        return service

    def script(self, file: Path, *, start: bool = True) -> Service:
        """A service `python file`, as its author starts it."""
        return self.add(f"{file.stem}-script", file, start=start)

    def agent(self, file: Path, *, name: str | None = None, start: bool = True) -> Service:
        return self.add(name or file.stem, "cadre_agent", file, start=start)

    def tools(self, module: Path, *, name: str | None = None, start: bool = True) -> Service:
        return self.add(name or module.stem, "cadre_tools", module, start=start)

    def model(self, script: Path) -> Service:
        """The scripted model, which all agents added later will ask."""
        service = self.add("model", "cadre_scripted_model", "--script", script, start=False)
        service._arguments += ["--port", str(service.port)]
        service.start()
        self.environment["CADRE_MODEL_URL"] = f"{service.url}/v1"
        self.environment["CADRE_MODEL"] = "scripted"
        return service

    def gateway(self, *, start: bool = True) -> Gateway:
        return Gateway(self.add("gateway", "cadre_gateway", start=start))

    def start_all(self) -> None:
        """Starts at once anything that does not run yet, then waits for all of it."""
        asleep = [service for service in self.services.values() if not service.is_running]
        for service in asleep:
            service.start(wait=False)
        for service in asleep:
            service.wait_ready()

    def open_gateway(self, agents: int = 0) -> Gateway:
        """Start a gateway and anything that does not run yet; return it once so many agents may call all that they
        name."""
        gateway = self.gateway(start=False)
        self.start_all()
        if agents:
            gateway.wait_offered(agents)
        return gateway

    @contextlib.asynccontextmanager
    async def platform(self, *, key: Path | None = None) -> AsyncIterator[Platform]:
        """Yield a service's connection to NATS, for a test that writes or reads next to them; `key` is its user's
        file."""
        settings = Settings(nats_url=self.nats.url, shards=2, nats_credentials=str(key or ""))
        platform = await open_platform("test", settings)
        try:
            yield platform
        finally:
            await platform.registry.stop()
            await platform.nc.close()

    def model_requests(self) -> list[dict[str, Any]]:
        """The model's own account of what it was asked."""
        answer = httpx2.get(f"{self.services['model'].url}/script/journal", timeout=patience())
        lines: list[dict[str, Any]] = answer.json()
        return lines

    def release_model(self) -> None:
        """Has the model send the replies that it holds."""
        httpx2.post(f"{self.services['model'].url}/script/release", timeout=patience()).raise_for_status()

    def hold_model(self) -> None:
        """Has the model hold replies again that it let go of."""
        httpx2.post(f"{self.services['model'].url}/script/reset", timeout=patience()).raise_for_status()

    def logs(self) -> str:
        began = {name: one.log for name, one in self.services.items() if one.log.exists()}
        return "\n".join(f"--- {name}\n{log.read_text()[-4000:]}" for name, log in began.items())


class Gateway:
    """The gateway's HTTP API as a test uses it."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def submit(self, agent: str, task: str, **fields: Any) -> str:
        answer = self.request("POST", "/v1/runs", json={"agent": agent, "task": task, **fields})
        assert answer.status_code == 202, answer.text
        run: str = answer.json()["id"]
        return run

    def run(self, run_id: str, **query: str) -> dict[str, Any]:
        answer = self.request("GET", f"/v1/runs/{run_id}", params=query)
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    def answer(self, agent: str, task: str, **fields: Any) -> Any:
        """The output of a new run, which must succeed."""
        return self.succeeded(self.submit(agent, task, **fields))

    def succeeded(self, run_id: str) -> Any:
        """The output of the run, once it has succeeded."""
        result = self.finished(run_id)
        assert result["state"] == "success", result["error"]
        return result["output"]

    def finished(self, run_id: str, within: float = 90.0) -> dict[str, Any]:
        """The run once it has ended; waits for that by the event stream's end."""
        last: dict[str, Any] = {}

        def over() -> bool:
            nonlocal last
            with contextlib.suppress(httpx2.HTTPError, AssertionError):
                last = self.run(run_id, full="true")
                return last["ended_at"] is not None
            return False

        eventually(over, within=within, what=f"run {run_id} has ended", state=lambda: last)
        return last

    def wait_offered(self, count: int) -> None:
        """Until so many agents are at work and may call all that their files name (`lacking` never may)."""
        agents: list[dict[str, Any]] = []

        def lack_nothing() -> bool:
            found = self.request("GET", "/v1/agents").json()["agents"]
            agents[:] = [agent for agent in found if agent["away_since"] is None]
            lacks = [a for a in agents if (a["missing"] or a["away"]) and a["name"] != "lacking"]
            return len(agents) == count and not lacks

        eventually(lack_nothing, what="the agents are offered all they need", state=lambda: agents)

    def events(self, run_id: str, after: int = 0, view: str = "events") -> Iterator[tuple[str, dict[str, Any]]]:
        """(event name, data) of the run's tree, until its end."""

        url = f"{self.service.url}/v1/runs/{run_id}/events"
        params: dict[str, str | int] = {"after": after, "view": view}
        with httpx2.stream("GET", url, params=params, timeout=patience(), verify=False) as response:
            assert response.status_code == 200, response.read()
            name = ""
            for line in response.iter_lines():
                if line.startswith("event:"):
                    name = line[6:].strip()
                elif line.startswith("data:"):
                    yield name, json.loads(line[5:])

    def wait_for(self, run_id: str, name: str, **fields: Any) -> dict[str, Any]:
        """The first event with this name and these fields."""
        for event, data in self.events(run_id):
            inner = data.get("event", data)
            if event == name and all(inner.get(k, data.get(k)) == v for k, v in fields.items()):
                return data
        raise AssertionError(f"run {run_id} ended without {name} {fields}")

    def request(self, method: str, path: str, **options: Any) -> httpx2.Response:
        # Without certificates to read: they would be most of what asking again and again costs.
        url = f"{self.service.url}{path}"
        return httpx2.request(method, url, timeout=patience(), verify=False, **options)

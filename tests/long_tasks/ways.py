"""Two protocols by which a client begins a long task, sends it again, and asks for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any
from uuid import uuid4

import httpx2

from harness.patience import eventually

Json = dict[str, Any]

_TASKS = "io.modelcontextprotocol/tasks"
_MCP = "2026-07-28"


class Way(ABC):
    """A client of one protocol: every question is asked until somebody answers."""

    name: str
    text: str

    def __init__(self, text: str) -> None:
        self.text = text
        self.key = uuid4().hex
        self.asked = 0

    @abstractmethod
    def begin(self, url: str) -> str:
        """Begins the task, or finds it if it was begun; returns its id."""

    @abstractmethod
    def state(self, url: str, task: str) -> str:
        """The state of the task."""

    @abstractmethod
    def result(self, url: str, task: str) -> str:
        """Return what the task has found."""

    def post(self, url: str, body: Json, headers: dict[str, str]) -> Json:
        """The `result` of a call of JSON-RPC."""
        found: Json = {}

        def answered() -> bool:
            self.asked += 1
            try:
                answer = httpx2.post(url, json={"jsonrpc": "2.0", "id": 1, **body}, headers=headers, timeout=30)
                found.update(answer.json())
            except (httpx2.HTTPError, ValueError):
                return False
            return "result" in found

        eventually(answered, what=f"an answer to {body['method']}", state=lambda: found)
        result: Json = found["result"]
        return result


class A2a(Way):
    """A2A 1.0."""

    name = "A2A"

    def _call(self, url: str, method: str, params: Json) -> Json:
        body = {"method": method, "params": params}
        return self.post(f"{url}/a2a/digger", body, {"A2A-Version": "1.0"})

    def begin(self, url: str) -> str:
        said = {"messageId": self.key, "role": "ROLE_USER", "parts": [{"text": self.text}]}
        params = {"message": said, "configuration": {"returnImmediately": True}}
        task: str = self._call(url, "SendMessage", params)["task"]["id"]
        return task

    def state(self, url: str, task: str) -> str:
        state: str = self._call(url, "GetTask", {"id": task})["status"]["state"]
        return state.removeprefix("TASK_STATE_").lower()

    def result(self, url: str, task: str) -> str:
        (artifact,) = self._call(url, "GetTask", {"id": task})["artifacts"]
        text: str = artifact["parts"][0]["text"]
        return text


class McpTasks(Way):
    """MCP with its extension for tasks."""

    name = "MCP Tasks"

    def _call(self, url: str, method: str, **params: Any) -> Json:
        meta = {
            "io.modelcontextprotocol/protocolVersion": _MCP,
            "io.modelcontextprotocol/clientCapabilities": {"extensions": {_TASKS: {}}},
            "cadre.dev/idempotency-key": self.key,
        }
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": _MCP,
            "mcp-method": method,
            "mcp-name": params.get("name", params.get("taskId", "")),
        }
        return self.post(f"{url}/mcp", {"method": method, "params": {**params, "_meta": meta}}, headers)

    def begin(self, url: str) -> str:
        task: str = self._call(url, "tools/call", name="digger", arguments={"task": self.text})["taskId"]
        return task

    def state(self, url: str, task: str) -> str:
        state: str = self._call(url, "tasks/get", taskId=task)["status"]
        return state

    def result(self, url: str, task: str) -> str:
        text: str = self._call(url, "tasks/get", taskId=task)["result"]["content"][0]["text"]
        return text

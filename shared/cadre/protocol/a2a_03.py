"""Translate the JSON of A2A 0.3 from and to that of version 1.0: method names, parts, messages, tasks.

Version 0.3 has two forms: that of JSON-RPC, whose objects name their `kind`, and that of HTTP+JSON, which follows its
Protocol Buffers. What is read may be in either.
"""

from __future__ import annotations

import base64
from typing import Any

Json = dict[str, Any]

METHODS = {
    "message/send": "SendMessage",
    "message/stream": "SendStreamingMessage",
    "tasks/get": "GetTask",
    "tasks/cancel": "CancelTask",
    "tasks/resubscribe": "SubscribeToTask",
    "tasks/pushNotificationConfig/set": "CreateTaskPushNotificationConfig",
    "tasks/pushNotificationConfig/get": "GetTaskPushNotificationConfig",
    "tasks/pushNotificationConfig/list": "ListTaskPushNotificationConfigs",
    "tasks/pushNotificationConfig/delete": "DeleteTaskPushNotificationConfig",
    "agent/getAuthenticatedExtendedCard": "GetExtendedAgentCard",
}
"""The name in version 1.0 of each method of version 0.3."""

_ROLE, _STATE = "ROLE_", "TASK_STATE_"
_FILE_KEYS = {"bytes": "raw", "uri": "url", "name": "filename", "mimeType": "mediaType"}
_FILE_KEYS_FROM = {**_FILE_KEYS, "fileWithBytes": "raw", "fileWithUri": "url"}


def message_from_03(said: Any) -> Any:
    """Return a message in the form of version 1.0; a value that is no message as it is, for its reader to refuse."""
    if not isinstance(said, dict):
        return said
    found = {key: value for key, value in said.items() if key not in ("kind", "content")}
    parts = said.get("parts", said.get("content"))
    if isinstance(parts, list):
        found["parts"] = [_part_from(part) for part in parts]
    if isinstance(role := said.get("role"), str):
        found["role"] = f"{_ROLE}{role.removeprefix(_ROLE).upper()}"
    return found


def task_from_03(task: Any) -> Any:
    """Return a task in the form of version 1.0; a value that is no task as it is, for its reader to refuse."""
    if not isinstance(task, dict) or not isinstance(status := task.get("status"), dict):
        return task
    found = {key: value for key, value in task.items() if key != "kind"}
    found["status"] = {**status, "state": _state_from(status.get("state"))}
    if "message" in status:
        found["status"]["message"] = message_from_03(status["message"])
    for key in ("artifacts", "history"):
        if isinstance(task.get(key), list):
            found[key] = [message_from_03(one) for one in task[key]]
    return found


def message_to_03(said: Json) -> Json:
    """Return a message of version 1.0 in the form of JSON-RPC."""
    return {**_with_parts(said), "kind": "message", "role": said["role"].removeprefix(_ROLE).lower()}


def message_to_03_http(said: Json) -> Json:
    """Return a message of version 1.0 in the form of HTTP+JSON."""
    found = {key: value for key, value in said.items() if key != "parts"}
    return {**found, "content": [_part_to_http(part) for part in said["parts"]]}


def task_to_03(task: Json) -> Json:
    """Return a task of version 1.0 in the form of JSON-RPC."""
    found = {**task, "kind": "task", "status": status_to_03(task["status"])}
    if "artifacts" in task:
        found["artifacts"] = [artifact_to_03(artifact) for artifact in task["artifacts"]]
    if "history" in task:
        found["history"] = [message_to_03(said) for said in task["history"]]
    return found


def status_to_03(status: Json) -> Json:
    """Return the status of a task of version 1.0 in the form of JSON-RPC."""
    state = status["state"].removeprefix(_STATE).lower().replace("_", "-")
    return {**status, "state": state} | ({"message": message_to_03(status["message"])} if "message" in status else {})


def artifact_to_03(artifact: Json) -> Json:
    """Return an artifact of version 1.0 in the form of JSON-RPC."""
    return _with_parts(artifact)


def _state_from(state: Any) -> Any:
    if not isinstance(state, str):
        return state
    word = state.removeprefix(_STATE).upper().replace("-", "_")
    return f"{_STATE}{'CANCELED' if word == 'CANCELLED' else word}"


def _part_from(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    file, data = part.get("file"), part.get("data")
    if isinstance(file, dict) and part.get("kind", "file") == "file":
        said = {_FILE_KEYS_FROM[key]: value for key, value in file.items() if key in _FILE_KEYS_FROM}
        if isinstance(twice := file.get("fileWithBytes"), str):
            said["raw"] = _encoded_once(twice, str(file.get("mimeType") or ""))
        return said
    found = {key: value for key, value in part.items() if key != "kind"}
    if "kind" not in part and isinstance(data, dict) and data.keys() == {"data"}:
        found["data"] = data["data"]  # HTTP+JSON wraps what the part holds
    return found


def _encoded_once(content: str, media_type: str) -> str:
    """Return the content of a file in Base64. A2A's SDK for Python encodes it twice over HTTP+JSON."""
    try:
        inner = base64.b64decode(content, validate=True)
        if not inner:
            return content
        data = base64.b64decode(inner, validate=True)
        if media_type.startswith("text/"):
            data.decode()
        return inner.decode()
    except ValueError:
        return content


def _with_parts(holder: Json) -> Json:
    return {**holder, "parts": [_part_to(part) for part in holder["parts"]]}


def _part_to(part: Json) -> Json:
    if "text" in part:
        return {"kind": "text", "text": part["text"]}
    if "data" not in part:
        return {"kind": "file", "file": {old: part[new] for old, new in _FILE_KEYS.items() if new in part}}
    return {"kind": "data", "data": _object(part["data"])}


def _part_to_http(part: Json) -> Json:
    if "text" in part:
        return {"text": part["text"]}
    if "data" in part:
        return {"data": {"data": _object(part["data"])}}
    names = {"raw": "fileWithBytes", "url": "fileWithUri", "filename": "name", "mediaType": "mimeType"}
    return {"file": {names[key]: value for key, value in part.items() if key in names}}


def _object(data: Any) -> Json:
    """Return data as an object, which is all that version 0.3 takes."""
    return data if isinstance(data, dict) else {"value": data}

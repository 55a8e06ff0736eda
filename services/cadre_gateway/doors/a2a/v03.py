"""Translate between A2A protocol versions 0.3 and 1.0.

Version 0.3 has other names for methods and states, and a `kind` in each object."""

from __future__ import annotations

from typing import Any

from cadre_gateway.doors.a2a.task_object import SUBMITTED, WORKING, Json

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
"""Each method of version 0.3, and what version 1.0 calls it."""


def params_of(method: str, params: Json) -> Json:
    """Parameters of a method as version 1.0 has them; what has not their form is left for its checks."""
    if method == "ListTaskPushNotificationConfigs":
        return {"taskId": params.get("id")}
    if "pushNotificationConfigId" in params:
        return {"taskId": params.get("id"), "id": params["pushNotificationConfigId"]}
    if isinstance(push := params.get("pushNotificationConfig"), dict):
        return {**_push_of(push), "taskId": params.get("taskId")}
    said, configuration = params.get("message"), params.get("configuration")
    found = dict(params)
    if isinstance(said, dict) and isinstance(said.get("parts"), list):
        found["message"] = {**said, "parts": [_part_of(part) for part in said["parts"]]}
    if isinstance(configuration, dict):
        found["configuration"] = {
            "returnImmediately": configuration.get("blocking") is False,
            "historyLength": configuration.get("historyLength"),
            "taskPushNotificationConfig": _push_of(configuration.get("pushNotificationConfig")),
        }
    return found


def result_of(result: Json) -> Any:
    """Return what version 1.0 answers, or tells in a stream, as version 0.3 has it."""
    if "configs" in result:
        return [_push(one) for one in result["configs"]]
    if "url" in result:
        return _push(result)
    if not result:
        return None
    if "task" in result:
        return _task(result["task"])
    if "statusUpdate" in result:
        update = result["statusUpdate"]
        is_final = update["status"]["state"] not in (WORKING, SUBMITTED)
        return {**update, "kind": "status-update", "status": _status(update["status"]), "final": is_final}
    if "artifactUpdate" in result:
        update = result["artifactUpdate"]
        return {**update, "kind": "artifact-update", "artifact": _with_parts(update["artifact"])}
    return _task(result)


def _push_of(push: Any) -> Any:
    about = push.get("authentication") if isinstance(push, dict) else None
    if not isinstance(about, dict):
        return push
    schemes = about.get("schemes") or [""]
    return {**push, "authentication": {"scheme": schemes[0], "credentials": about.get("credentials") or ""}}


def _push(config: Json) -> Json:
    found = {key: value for key, value in config.items() if key in ("id", "url", "token")}
    if "authentication" in config:
        found["authentication"] = {"schemes": [config["authentication"]["scheme"]]}
    return {"taskId": config["taskId"], "pushNotificationConfig": found}


def _part_of(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    file = part.get("file")
    if part.get("kind") != "file" or not isinstance(file, dict):
        return {key: value for key, value in part.items() if key != "kind"}
    names = {"bytes": "raw", "uri": "url", "name": "filename", "mimeType": "mediaType"}
    return {names[key]: value for key, value in file.items() if key in names}


def _task(task: Json) -> Json:
    found = {**task, "kind": "task", "status": _status(task["status"])}
    if "artifacts" in task:
        found["artifacts"] = [_with_parts(artifact) for artifact in task["artifacts"]]
    if "history" in task:
        found["history"] = [_message(said) for said in task["history"]]
    return found


def _status(status: Json) -> Json:
    state = status["state"].removeprefix("TASK_STATE_").lower().replace("_", "-")
    return {**status, "state": state} | (
        {"message": _message(status["message"])} if "message" in status else {}
    )


def _message(said: Json) -> Json:
    return {**_with_parts(said), "kind": "message", "role": said["role"].removeprefix("ROLE_").lower()}


def _with_parts(holder: Json) -> Json:
    return {**holder, "parts": [_part(part) for part in holder["parts"]]}


def _part(part: Json) -> Json:
    if "text" in part:
        return {"kind": "text", "text": part["text"]}
    data = part["data"]
    return {"kind": "data", "data": data if isinstance(data, dict) else {"value": data}}

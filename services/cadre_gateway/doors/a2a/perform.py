"""Does what A2A's clients ask for, whichever binding has brought it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from fastapi import Request

from cadre.versions import same_minor
from cadre_gateway.doors.a2a.card import VERSIONS
from cadre_gateway.doors.a2a.methods import AgentTasks
from cadre_gateway.doors.a2a.request import (
    ListParams,
    PushConfig,
    PushParams,
    PushTask,
    SendParams,
    TaskParams,
)
from cadre_gateway.doors.a2a.task_object import Json
from cadre_gateway.doors.sender import sender_of
from cadre_gateway.requests.problems import Problem, invalid

_PARAMS: dict[str, type[msgspec.Struct]] = {
    "SendMessage": SendParams,
    "SendStreamingMessage": SendParams,
    "GetTask": TaskParams,
    "CancelTask": TaskParams,
    "SubscribeToTask": TaskParams,
    "ListTasks": ListParams,
    "CreateTaskPushNotificationConfig": PushConfig,
    "GetTaskPushNotificationConfig": PushParams,
    "ListTaskPushNotificationConfigs": PushTask,
    "DeleteTaskPushNotificationConfig": PushParams,
}
_REFUSED = {
    "GetExtendedAgentCard": ("no-extended-card", "there is one card for everybody"),
}


def check_version(request: Request) -> None:
    """Raises a problem for a version of the protocol that is not spoken here."""
    version = request.headers.get("a2a-version") or VERSIONS[0]
    if not any(same_minor(version, spoken) for spoken in VERSIONS):
        raise Problem(
            400, "unknown-version", f"A2A-Version {version!r}: this agent speaks {', '.join(VERSIONS)}"
        )


async def perform(
    tasks: AgentTasks, agent: str, method: str, params: Json, request: Request
) -> Json | AsyncGenerator[Json]:
    """The result of a method of protocol version 1.0, or what it tells as a stream. Raises Problem, RetryableError."""
    if method in _REFUSED:
        raise Problem(400, *_REFUSED[method])
    if method not in _PARAMS:
        raise Problem(400, "unknown-method", f"no method {method!r}: {', '.join(_PARAMS)}")
    wanted: Any = _read(params, _PARAMS[method])
    sender = sender_of(request)
    match method:
        case "SendStreamingMessage":
            return await tasks.send_streaming(agent, wanted, sender)
        case "SubscribeToTask":
            return await tasks.subscribe(agent, wanted, sender.caller)
        case "SendMessage":
            return await tasks.send(agent, wanted, sender)
        case "GetTask":
            return await tasks.get(agent, wanted, sender.caller)
        case "CancelTask":
            return await tasks.cancel(agent, wanted, sender.caller)
        case "CreateTaskPushNotificationConfig":
            return await tasks.put_push(agent, wanted, sender.caller)
        case "GetTaskPushNotificationConfig":
            return await tasks.get_push(agent, wanted, sender.caller)
        case "ListTaskPushNotificationConfigs":
            return await tasks.list_pushes(agent, wanted, sender.caller)
        case "DeleteTaskPushNotificationConfig":
            return await tasks.delete_push(agent, wanted, sender.caller)
        case _:
            return await tasks.list(agent, wanted, sender.caller)


def _read(params: Json, kind: type[msgspec.Struct]) -> Any:
    try:
        return msgspec.convert(params, kind)
    except msgspec.ValidationError as error:
        raise invalid(f"params: {error}") from error

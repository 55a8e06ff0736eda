"""What A2A's clients send, in the JSON of protocol version 1.0."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from cadre_gateway.doors.message_content import MessageContent
from cadre_gateway.requests.problems import invalid

MAX_PAGE = 100
"""Tasks of one page at most, as the protocol has it."""
_MAX_ID_CHARS = 255

Id = Annotated[str, msgspec.Meta(min_length=1, max_length=_MAX_ID_CHARS)]


class RpcCall(msgspec.Struct, frozen=True):
    """A call of JSON-RPC 2.0."""

    jsonrpc: str
    method: str
    id: str | int | None = None
    params: dict[str, Any] = {}


class MessagePart(msgspec.Struct, frozen=True, rename="camel"):
    """A piece of a message: one of `text`, `raw`, `url` and `data`."""

    text: str | None = None
    raw: str | None = None
    """Base64."""
    url: str | None = None
    data: Any = msgspec.UNSET
    filename: str = ""
    media_type: str = ""


class SentMessage(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What the client says to the agent."""

    message_id: Id
    role: str = "ROLE_USER"
    parts: Annotated[list[MessagePart], msgspec.Meta(min_length=1)]
    context_id: Annotated[str, msgspec.Meta(max_length=_MAX_ID_CHARS)] = ""
    task_id: str = ""
    metadata: dict[str, Any] = {}


class PushAuthentication(msgspec.Struct, frozen=True, kw_only=True):
    """How an address for push notifications knows who sends."""

    scheme: str
    credentials: str = ""


class PushConfig(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """An address that is told how a task goes."""

    url: str
    id: str = ""
    token: str = ""
    authentication: PushAuthentication | None = None
    task_id: str = ""


class Configuration(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """How a message is to be answered."""

    return_immediately: bool = False
    history_length: int | None = None
    task_push_notification_config: PushConfig | None = None


class SendParams(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The parameters of SendMessage and SendStreamingMessage."""

    message: SentMessage
    configuration: Configuration = Configuration()
    metadata: dict[str, Any] = {}


class TaskParams(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The parameters of GetTask, CancelTask and SubscribeToTask."""

    id: Id
    history_length: int | None = None
    metadata: dict[str, Any] = {}
    """Of CancelTask: `now`, true for the end at once."""


class PushTask(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The parameters of ListTaskPushNotificationConfigs."""

    task_id: Id


class PushParams(PushTask, frozen=True, rename="camel", kw_only=True):
    """The parameters of GetTaskPushNotificationConfig and DeleteTaskPushNotificationConfig."""

    id: Id


class ListParams(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The parameters of ListTasks."""

    context_id: str = ""
    status: str = ""
    page_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE)] = 50
    page_token: str = ""
    history_length: int | None = None
    include_artifacts: bool = False


def content_of(message: SentMessage) -> MessageContent:
    """Reads the parts of a message. Raises a 422 problem for one that says nothing."""
    found = MessageContent()
    texts: list[str] = []
    for index, part in enumerate(message.parts):
        if part.text is not None:
            texts.append(part.text)
        elif part.raw is not None:
            url = f"data:{part.media_type};base64,{part.raw}"
            if part.media_type.startswith("image/") and not part.filename:
                found.images.append(url)
            else:
                found.files[part.filename or f"file-{len(found.files) + 1}"] = url
        elif part.url is not None and part.media_type.startswith("image/"):
            found.images.append(part.url)
        elif part.url is not None:
            texts.append(part.url)
        elif part.data is not msgspec.UNSET:
            found.data.append(part.data)
        else:
            raise invalid("send one of text, raw, url and data", field=f"message.parts[{index}]")
    found.text = "\n".join(texts)
    return found

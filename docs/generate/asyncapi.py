"""The protocol as an AsyncAPI 3.0 document."""

import re
from typing import Any

import msgspec

from cadre.delivery.codec import CONTENT_TYPE
from cadre.journal.unions import close
from cadre.protocol.messages import SCHEMA_VERSION
from generate.channels import CHANNELS, OPERATIONS, PARAMETERS, Channel, Operation
from generate.schemas import MESSAGES, components, tag_of

INTERRUPT = "Interrupt"
"""The one payload that is no JSON."""


def document() -> dict[str, Any]:
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Cadre",
            "version": f"{SCHEMA_VERSION}.0.0",
            "description": "What the services of a Cadre deployment say to each other over NATS JetStream.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": CONTENT_TYPE,
        "servers": {
            "nats": {
                "host": "{host}",
                "protocol": "nats",
                "description": "A NATS server 2.12 or newer, with JetStream.",
                "variables": {"host": {"default": "127.0.0.1:4222"}},
            }
        },
        "channels": {channel.name: _channel(channel) for channel in CHANNELS},
        "operations": {operation.name: _operation(operation) for operation in OPERATIONS},
        "components": {
            "messages": {
                **{message.__name__: _message(message) for message in MESSAGES},
                INTERRUPT: {
                    "name": INTERRUPT,
                    "summary": "The id of the run.",
                    "contentType": "text/plain",
                    "payload": {"type": "string"},
                },
            },
            "schemas": components([*MESSAGES, *close().events], "#/components/schemas/{name}"),
        },
    }


def _channel(channel: Channel) -> dict[str, Any]:
    names = _names(channel)
    return {
        "address": channel.address,
        "summary": channel.summary,
        "parameters": {name: {"description": PARAMETERS[name]} for name in re.findall(r"{(\w+)}", channel.address)},
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in names},
        "bindings": {"nats": {}},
        "tags": [{"name": channel.kind}],
    }


def _operation(operation: Operation) -> dict[str, Any]:
    channel = next(channel for channel in CHANNELS if channel.name == operation.channel)
    names = [message.__name__ for message in operation.messages] or _names(channel)
    return {
        "action": operation.action,
        "channel": {"$ref": f"#/channels/{channel.name}"},
        "summary": operation.summary,
        "messages": [{"$ref": f"#/channels/{channel.name}/messages/{name}"} for name in names],
    }


def _message(message: type[msgspec.Struct]) -> dict[str, Any]:
    tag = tag_of(message)
    return {
        "name": tag or message.__name__,
        "summary": " ".join((message.__doc__ or "").split()),
        "contentType": CONTENT_TYPE,
        "payload": {"$ref": f"#/components/schemas/{message.__name__}"},
    }


def _names(channel: Channel) -> list[str]:
    return [message.__name__ for message in channel.messages] or [INTERRUPT]

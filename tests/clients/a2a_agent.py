"""Talks with agents by the stock client of A2A, in an environment that has it: a URL of the gateway, a file to book in;
prints what it was sent, as JSON."""

import asyncio
import json
import sys
from uuid import uuid4

import httpx
from a2a.client import ClientConfig, create_client
from a2a.client.card_resolver import parse_agent_card
from a2a.types.a2a_pb2 import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    TaskState,
)
from google.protobuf import struct_pb2


def asked(*parts: Part, **fields: str) -> SendMessageRequest:
    said = Message(message_id=uuid4().hex, role=Role.ROLE_USER, parts=parts, **fields)
    return SendMessageRequest(message=said)


async def talk(url: str, books: str) -> dict[str, object]:
    async with httpx.AsyncClient(timeout=120) as http:
        streaming = ClientConfig(httpx_client=http)
        whole = ClientConfig(httpx_client=http, streaming=False)
        host = await create_client(f"{url}/a2a/host", whole)
        chief = await create_client(f"{url}/a2a/chief", streaming)
        (greeted,) = [event.task async for event in host.send_message(asked(Part(text="Hi")))]
        events = [event async for event in chief.send_message(asked(Part(text=f"have clerk: refund {books} 500")))]
        status = events[-1].status_update
        question = status.status.message.parts[1].data.struct_value
        word = struct_pb2.Value()
        word.struct_value.update({"call": question["call"], "verdict": "approved", "arguments": {"amount": 50}})
        decided = [event async for event in chief.send_message(asked(Part(data=word), task_id=status.task_id))]
        listed = await host.list_tasks(ListTasksRequest(context_id=greeted.context_id))
        found = await chief.get_task(GetTaskRequest(id=status.task_id))
        again = [event async for event in chief.send_message(asked(Part(text=f"have clerk: refund {books} 900")))]
        cancelled = await chief.cancel_task(CancelTaskRequest(id=again[-1].status_update.task_id))
        card = (await http.get(f"{url}/a2a/host/.well-known/agent-card.json")).json()
        card["supportedInterfaces"] = [one for one in card["supportedInterfaces"] if one["protocolVersion"] == "0.3"]
        old = await create_client(parse_agent_card(card), streaming)
        plain = ClientConfig(httpx_client=http, supported_protocol_bindings=["HTTP+JSON"], use_client_preference=True)
        other = await create_client(f"{url}/a2a/host", plain)
        over_http = [event async for event in other.send_message(asked(Part(text="Hi")))]
        former = [event async for event in old.send_message(asked(Part(text="Hi")))]
        return {
            "over HTTP": TaskState.Name(over_http[-1].status_update.status.state),
            "version 0.3": TaskState.Name(former[-1].status_update.status.state),
            "greeting": greeted.artifacts[0].parts[0].text,
            "waits": TaskState.Name(status.status.state),
            "ends": TaskState.Name(decided[-1].status_update.status.state),
            "answer": found.artifacts[0].parts[0].text,
            "listed": [task.id for task in listed.tasks] == [greeted.id],
            "cancelled": TaskState.Name(cancelled.status.state),
        }


print(json.dumps(asyncio.run(talk(*sys.argv[1:]))))

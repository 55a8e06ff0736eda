"""An agent of another make on the official SDK of A2A 1.0: PORT, the URL that its card names, and the bindings and
versions that its card offers, such as `JSONRPC 1.0` and `HTTP+JSON 0.3`."""

import asyncio
import sys

import uvicorn
from a2a.helpers import (
    new_data_part,
    new_raw_part,
    new_task_from_user_message,
    new_text_message,
    new_text_part,
)
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers.default_request_handler_v2 import DefaultRequestHandlerV2
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


class Lawyer(AgentExecutor):  # type: ignore[misc]
    """Does what the text of its task says; `journal` are the ids of its messages, in their order."""

    def __init__(self) -> None:
        self.journal: list[str] = []
        self.released = asyncio.Event()

    async def execute(self, context: RequestContext, queue: EventQueue) -> None:
        said = context.message
        self.journal.append(said.message_id)
        text = "\n".join(part.text for part in said.parts if part.text)
        if text == "message":
            await queue.enqueue_event(new_text_message("Hello."))
            return
        task = context.current_task
        if task is None:
            task = new_task_from_user_message(said)
            await queue.enqueue_event(task)
            is_new = True
        else:
            is_new = False
        updater = TaskUpdater(queue, task.id, task.context_id)
        if not is_new:
            await updater.add_artifact([new_text_part(f"You said: {text}")])
            await updater.complete()
        elif text.startswith("ask"):
            await updater.requires_input(updater.new_agent_message([new_text_part("Which one?")]))
        elif text == "fail":
            await updater.failed(updater.new_agent_message([new_text_part("no such law")]))
        else:
            await self._work(updater, text, [part for part in said.parts if not part.text])

    async def _work(self, updater: TaskUpdater, text: str, others: list[Part]) -> None:
        await updater.start_work()
        if text == "hold":
            await self.released.wait()
        parts = [new_text_part(f"Done: {text}")]
        if text.startswith("file"):
            parts += [
                new_data_part({"a": 1}),
                new_raw_part(b"%PDF-1", "application/pdf", "deed.pdf"),
                *others,
            ]
        await updater.add_artifact(parts)
        await updater.complete()

    async def cancel(self, context: RequestContext, queue: EventQueue) -> None:
        await TaskUpdater(queue, context.task_id, context.context_id).cancel()


def main(port: str, url: str, *offered: str) -> None:
    interfaces = []
    for one in offered:
        binding, version = one.split()
        interfaces.append(AgentInterface(url=url, protocol_binding=binding, protocol_version=version))
    card = AgentCard(
        name="law",
        description="Knows the law.",
        version="1",
        supported_interfaces=interfaces,
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="law", name="law", description="Law.", tags=["law"])],
    )
    lawyer = Lawyer()
    handler = DefaultRequestHandlerV2(lawyer, InMemoryTaskStore(), card)

    async def journal(request: Request) -> Response:
        return JSONResponse(lawyer.journal)

    async def release(request: Request) -> Response:
        lawyer.released.set()
        return Response()

    routes = [
        Route("/journal", journal),
        Route("/release", release, methods=["POST"]),
        *create_agent_card_routes(card),
        *create_jsonrpc_routes(handler, "/", enable_v0_3_compat=True),
        *create_rest_routes(handler, enable_v0_3_compat=True),
    ]
    uvicorn.run(Starlette(routes=routes), host="127.0.0.1", port=int(port), log_level="warning")


main(*sys.argv[1:])

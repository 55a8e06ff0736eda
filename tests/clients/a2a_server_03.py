"""An agent of another make on the official SDK of A2A 0.3: PORT, the URL that its card names, and the transport that
its card prefers; the card offers the other one as well."""

import asyncio
import base64
import sys

import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.apps import A2ARESTFastAPIApplication, A2AStarletteApplication
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    DataPart,
    FilePart,
    FileWithBytes,
    Part,
    TextPart,
)
from a2a.utils import new_agent_text_message, new_task
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

OTHER = {"JSONRPC": "HTTP+JSON", "HTTP+JSON": "JSONRPC"}


def text_part(text: str) -> Part:
    return Part(root=TextPart(text=text))


class Lawyer(AgentExecutor):  # type: ignore[misc]
    """Does what the text of its task says; `journal` are the ids of its messages, in their order."""

    def __init__(self) -> None:
        self.journal: list[str] = []
        self.released = asyncio.Event()

    async def execute(self, context: RequestContext, queue: EventQueue) -> None:
        said = context.message
        self.journal.append(said.message_id)
        text = "\n".join(part.root.text for part in said.parts if isinstance(part.root, TextPart))
        if text == "message":
            await queue.enqueue_event(new_agent_text_message("Hello."))
            return
        is_new = context.current_task is None
        task = context.current_task or new_task(said)
        if is_new:
            await queue.enqueue_event(task)
        updater = TaskUpdater(queue, task.id, task.context_id)
        if not is_new:
            await updater.add_artifact([text_part(f"You said: {text}")])
            await updater.complete()
        elif text.startswith("ask"):
            await updater.requires_input(updater.new_agent_message([text_part("Which one?")]))
        elif text == "fail":
            await updater.failed(updater.new_agent_message([text_part("no such law")]))
        else:
            await self._work(updater, text, [part for part in said.parts if part.root.kind != "text"])

    async def _work(self, updater: TaskUpdater, text: str, others: list[Part]) -> None:
        await updater.start_work()
        if text == "hold":
            await self.released.wait()
        parts = [text_part(f"Done: {text}")]
        if text.startswith("file"):
            content = base64.b64encode(b"%PDF-1").decode()
            deed = FileWithBytes(bytes=content, mime_type="application/pdf", name="deed.pdf")
            parts += [Part(root=DataPart(data={"a": 1})), Part(root=FilePart(file=deed)), *others]
        await updater.add_artifact(parts)
        await updater.complete()

    async def cancel(self, context: RequestContext, queue: EventQueue) -> None:
        await TaskUpdater(queue, context.task_id, context.context_id).cancel()


def main(port: str, url: str, transport: str) -> None:
    card = AgentCard(
        name="law",
        description="Knows the law.",
        version="1",
        url=url,
        preferred_transport=transport,
        additional_interfaces=[AgentInterface(url=url, transport=OTHER[transport])],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="law", name="law", description="Law.", tags=["law"])],
    )
    lawyer = Lawyer()
    handler = DefaultRequestHandler(lawyer, InMemoryTaskStore())
    app = A2ARESTFastAPIApplication(card, handler).build()
    A2AStarletteApplication(card, handler).add_routes_to_app(app, agent_card_url="/card.json", rpc_url="/")

    async def journal(request: Request) -> Response:
        return JSONResponse(lawyer.journal)

    async def release(request: Request) -> Response:
        lawyer.released.set()
        return Response()

    app.add_route("/journal", journal)
    app.add_route("/release", release, methods=["POST"])
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")


main(*sys.argv[1:])

"""A web endpoint of one's own: `POST /ask` starts a run, `GET /ask/{run}` streams what it writes and how it ends."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel

from cadre import AsyncClient
from cadre.client import AsyncRunHandle, ClientError
from cadre.events import Delta, RunFinished, ToolCalled

cadre = AsyncClient()


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    yield
    await cadre.close()


app = FastAPI(lifespan=lifespan)


class Question(BaseModel):
    text: str


@app.post("/ask", status_code=202)
async def ask(question: Question) -> dict[str, str]:
    run = await cadre.start("writer", question.text)
    return {"run": run.id}


@app.get("/ask/{run_id}")
async def follow(run_id: str) -> StreamingResponse:
    await cadre.get_run(run_id)  # a wrong id is told now: later the answer has begun
    return StreamingResponse(lines(cadre.attach(run_id)), media_type="text/event-stream")


async def lines(run: AsyncRunHandle) -> AsyncIterator[str]:
    async for event in run:
        match event.body:
            case Delta(text=text):
                said = {"text": text}
            case ToolCalled(tool=tool):
                said = {"tool": tool}
            case RunFinished(output=output) if event.run == run.id:
                said = {"answer": output}
            case _:
                continue
        yield f"data: {json.dumps(said)}\n\n"


@app.exception_handler(ClientError)
async def refused(_: Request, error: ClientError) -> JSONResponse:
    return JSONResponse({"detail": error.message}, error.status or 503)

"""Serve clients of OpenAI under the paths of their SDKs, with the agents as models."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from cadre.adapters.nats.registry import NatsRegistry
from cadre.protocol.cards import Presence
from cadre_gateway.doors.answers import json_answer
from cadre_gateway.doors.following import Answers
from cadre_gateway.doors.openai import chat_routes, kept_conversations, kept_files, response_routes
from cadre_gateway.doors.openai.chat_routes import ChatCompletions
from cadre_gateway.doors.openai.conversation import Conversations
from cadre_gateway.doors.openai.kept_conversations import KeptConversations
from cadre_gateway.doors.openai.kept_files import KeptFiles
from cadre_gateway.doors.openai.response_object import OpenAIRoute
from cadre_gateway.doors.openai.response_routes import Responses
from cadre_gateway.doors.sender import RunService
from cadre_gateway.reading.directory import live_agents
from cadre_gateway.requests.problems import Problem


def router(runs: RunService) -> APIRouter:
    """Return the routes of the door. OpenAI's own description covers them, so the gateway's leaves them out."""
    routes = APIRouter(prefix="/v1", route_class=OpenAIRoute, include_in_schema=False)
    answers = Answers(runs.lookup, runs.feeds, runs.watch_deltas)
    blobs, most = runs.submitter.workspaces.blobs, runs.submitter.workspaces.max_file_bytes
    files = KeptFiles(runs.kept_files, blobs, runs.clock, most)
    kept = KeptConversations(runs.kept_conversations, files, answers, runs)
    conversations = Conversations(answers, runs, kept)
    add_routes(routes, runs.registry)
    chat_routes.add_routes(routes, ChatCompletions(conversations, answers, runs.run_end, runs.registry))
    response_routes.add_routes(
        routes,
        Responses(conversations, answers, runs.reach, runs.history, runs.run_end, runs.eraser, runs.registry),
    )
    kept_conversations.add_routes(routes, kept)
    kept_files.add_routes(routes, files)
    return routes


def add_routes(routes: APIRouter, registry: NatsRegistry) -> None:
    """Add the routes of models."""

    @routes.get("/models", summary="The agents")
    async def get_models() -> Response:
        live = live_agents(registry.reachable())
        return json_answer({"object": "list", "data": [_model(name, live[name]) for name in sorted(live)]})

    @routes.get("/models/{model}", summary="One agent")
    async def get_model(model: str) -> Response:
        live = live_agents(registry.reachable())
        if model not in live:
            raise Problem(404, "unknown-agent", f"no agent is named {model!r}: GET /v1/models lists them")
        return json_answer(_model(model, live[model]))


def _model(name: str, replicas: list[Presence]) -> dict[str, Any]:
    card = replicas[-1].agent
    return {
        "id": name,
        "object": "model",
        "created": int(min(replica.started_at for replica in replicas)),
        "owned_by": "cadre",
        "description": card.description if card is not None else "",
    }

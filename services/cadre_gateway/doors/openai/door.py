"""The door for clients of OpenAI: its routes, under the paths that their SDKs ask for."""

from __future__ import annotations

from fastapi import APIRouter

from cadre_gateway.doors.following import Answers
from cadre_gateway.doors.openai import chat_routes, model_routes, response_routes
from cadre_gateway.doors.openai.chat_routes import ChatCompletions
from cadre_gateway.doors.openai.conversation import Conversations
from cadre_gateway.doors.openai.errors import OpenAIRoute
from cadre_gateway.doors.openai.response_routes import Responses
from cadre_gateway.doors.run_service import RunService


def router(runs: RunService) -> APIRouter:
    """The routes of the door. OpenAI's own description tells of them, so the gateway's leaves them out."""
    routes = APIRouter(prefix="/v1", route_class=OpenAIRoute, include_in_schema=False)
    answers = Answers(runs.lookup, runs.feeds, runs.watch_deltas)
    conversations = Conversations(answers, runs)
    model_routes.add_routes(routes, runs.registry)
    chat_routes.add_routes(routes, ChatCompletions(conversations, answers, runs.run_end, runs.registry))
    response_routes.add_routes(
        routes,
        Responses(conversations, answers, runs.reach, runs.history, runs.run_end, runs.eraser, runs.registry),
    )
    return routes

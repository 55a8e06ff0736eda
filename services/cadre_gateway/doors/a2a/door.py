"""The door for A2A's clients: an address for each agent, its card, and two bindings at it."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from cadre_gateway.access.principal import caller_of
from cadre_gateway.doors.a2a import bindings
from cadre_gateway.doors.a2a.card import KEYS, card_of_agent, for_older_clients, signer_of
from cadre_gateway.doors.a2a.messages import Messages
from cadre_gateway.doors.a2a.methods import AgentTasks, TaskWatch
from cadre_gateway.doors.answers import json_answer
from cadre_gateway.doors.following import Answers
from cadre_gateway.doors.sender import RunService
from cadre_gateway.reading.directory import card_of
from cadre_gateway.requests.problems import Problem

CARD = f"{bindings.AGENT}/.well-known/agent-card.json"


def router(runs: RunService) -> APIRouter:
    """The routes of the door. A2A's own specification tells of them, so the gateway's leaves them out."""
    routes = APIRouter(include_in_schema=False)
    answers = Answers(runs.lookup, runs.feeds, runs.watch_deltas)
    watch = TaskWatch(runs.pushes, answers)
    runs.pushes.body = watch.body
    settings = runs.cards
    signer = signer_of(settings)
    tasks = AgentTasks(runs, answers, Messages(runs, answers), watch)

    @routes.get(CARD, summary="The card of an agent")
    async def get_card(agent: str, request: Request) -> Response:
        card = card_of(runs.registry.reachable(), agent)
        if card is None:
            raise Problem(404, "unknown-agent", f"no agent is named {agent!r}: GET /v1/agents lists them")
        url = f"{settings.url or str(request.base_url).rstrip('/')}/a2a/{agent}"
        found = card_of_agent(card, url, asks_who_calls=bool(caller_of(request).key))
        # A signature is about version 1.0: its clients leave out what they do not know, and would find it broken.
        return json_answer(for_older_clients(found, url) if signer is None else signer.signed(found))

    @routes.get(KEYS, summary="The keys that cards are signed with")
    async def get_keys() -> Response:
        return json_answer(signer.keys if signer is not None else {"keys": []})

    bindings.add_json_rpc_routes(routes, tasks)
    bindings.add_http_json_routes(routes, tasks)
    return routes

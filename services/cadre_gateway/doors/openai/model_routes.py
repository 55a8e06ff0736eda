"""GET /v1/models: the agents, as the models that clients may name."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from cadre.adapters.nats.registry import NatsRegistry
from cadre.protocol.cards import Presence
from cadre_gateway.doors.answer_json import json_answer
from cadre_gateway.reading.directory import live_agents
from cadre_gateway.requests.problems import Problem


def add_routes(routes: APIRouter, registry: NatsRegistry) -> None:
    """Adds the routes of models."""

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

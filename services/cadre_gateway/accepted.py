"""The answer to a request that started a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from fastapi.responses import Response

from cadre_gateway.projection import RunSummary
from cadre_gateway.tracing_routes import trace_headers


def accepted(run: RunSummary, later_files: Sequence[str] = ()) -> Response:
    here = f"/v1/runs/{run.id}"
    links = {"self": here, "events": f"{here}/events", "cancel": f"{here}/cancel"}
    told: dict[str, Any] = {"id": run.id, "agent": run.agent, "state": run.state, "links": links}
    if later_files:
        told["later_files"] = list(later_files)
    headers = {"Location": here, **trace_headers(run.id)}
    return Response(msgspec.json.encode(told), 202, headers, media_type="application/json")

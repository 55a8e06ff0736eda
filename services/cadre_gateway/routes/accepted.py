"""The answer to a request that started a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from fastapi.responses import Response

from cadre_gateway.index.run_list import RunSummary
from cadre_gateway.routes.tracing import trace_headers

_RUNS = "/v1/runs"


def accepted(run: RunSummary, later_files: Sequence[str] = ()) -> Response:
    here = f"{_RUNS}/{run.id}"
    links = {"self": here, "events": f"{here}/events", "cancel": f"{here}/cancel"}
    told: dict[str, Any] = {"id": run.id, "agent": run.agent, "state": run.state, "links": links}
    if later_files:
        told["later_files"] = list(later_files)
    return Response(msgspec.json.encode(told), 202, where(run.id), media_type="application/json")


def where(run: str) -> dict[str, str]:
    """Headers that say where the run is, and its trace."""
    return {"Location": f"{_RUNS}/{run}", **trace_headers(run)}

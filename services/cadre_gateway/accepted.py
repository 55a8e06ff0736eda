"""The answer to a request that started a run."""

from __future__ import annotations

import msgspec
from fastapi.responses import Response

from cadre_gateway.projection import RunSummary


def accepted(run: RunSummary) -> Response:
    here = f"/v1/runs/{run.id}"
    links = {"self": here, "events": f"{here}/events", "cancel": f"{here}/cancel"}
    told = {"id": run.id, "agent": run.agent, "state": run.state, "links": links}
    return Response(msgspec.json.encode(told), 202, {"Location": here}, media_type="application/json")

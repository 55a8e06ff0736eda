"""Answers that several routes give."""

from collections.abc import Sequence
from typing import Any

import msgspec
from fastapi.responses import Response

from cadre.api.runs import Accepted, RunSummary
from cadre_gateway.requests.trace_link import trace_headers

_RUNS = "/v1/runs"


def json_answer(value: Any, status: int = 200) -> Response:
    """`value` as JSON; structs as they are declared."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def accepted(run: RunSummary, later_files: Sequence[str] = ()) -> Response:
    """The 202 answer to a request that started a run."""
    here = f"{_RUNS}/{run.id}"
    links = {"self": here, "events": f"{here}/events", "cancel": f"{here}/cancel"}
    body = Accepted(run.id, run.agent, run.state, links, list(later_files))
    answer = json_answer(body, 202)
    answer.headers.update(run_headers(run.id))
    return answer


def run_headers(run: str) -> dict[str, str]:
    """Headers that say where the run is, and its trace."""
    return {"Location": f"{_RUNS}/{run}", **trace_headers(run)}

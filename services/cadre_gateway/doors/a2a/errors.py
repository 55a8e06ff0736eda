"""Write errors in the forms of A2A's two bindings."""

from __future__ import annotations

from typing import Any, NamedTuple

from cadre_gateway.requests.problems import Problem

_INTERNAL = -32603
_INVALID_PARAMS = -32602
_SERVER_ERROR = 500
_BAD_REQUEST = 400
_STATUS = {-32001: 404, -32601: 404}
"""Over plain HTTP, by the code of JSON-RPC; what a caller did is 400 else."""


class _Kind(NamedTuple):
    code: int
    reason: str


_KINDS = {
    "unknown-run": _Kind(-32001, "TASK_NOT_FOUND"),
    "run-erased": _Kind(-32001, "TASK_NOT_FOUND"),
    "task-not-cancelable": _Kind(-32002, "TASK_NOT_CANCELABLE"),
    "run-ended": _Kind(-32004, "UNSUPPORTED_OPERATION"),
    "no-extended-card": _Kind(-32007, "EXTENDED_AGENT_CARD_NOT_CONFIGURED"),
    "unknown-version": _Kind(-32009, "VERSION_NOT_SUPPORTED"),
    "not-json": _Kind(-32700, "JSON_PARSE_ERROR"),
    "not-a-call": _Kind(-32600, "INVALID_REQUEST"),
    "unknown-method": _Kind(-32601, "METHOD_NOT_FOUND"),
}


def error_of(problem: Problem) -> dict[str, Any]:
    """The `error` member of an answer of JSON-RPC: what the caller did is told apart from what happened here."""
    return {"code": _kind_of(problem).code, "message": problem.detail, "data": [_info(problem)]}


def status_of_error(problem: Problem) -> tuple[int, dict[str, Any]]:
    """The status and the body of an answer over plain HTTP: a google.rpc.Status."""
    kind = _KINDS.get(problem.code)
    status = _STATUS.get(kind.code, _BAD_REQUEST) if kind is not None else problem.status
    error = {"code": status, "status": _info(problem)["reason"], "message": problem.detail}
    return status, {"error": error | {"details": [_info(problem)]}}


def _kind_of(problem: Problem) -> _Kind:
    own = _INTERNAL if problem.status >= _SERVER_ERROR else _INVALID_PARAMS
    return _KINDS.get(problem.code, _Kind(own, ""))


def _info(problem: Problem) -> dict[str, Any]:
    reason = _kind_of(problem).reason
    if not reason:
        reason = (
            "INVALID_PARAMS" if problem.code == "invalid-request" else problem.code.replace("-", "_").upper()
        )
    return {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason,
        "domain": "a2a-protocol.org",
        "metadata": {"status": str(problem.status)},
    }

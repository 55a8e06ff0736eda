"""Errors in the form of A2A's binding to JSON-RPC."""

from typing import Any, NamedTuple

from cadre_gateway.requests.problems import Problem

_INTERNAL = -32603
_INVALID_PARAMS = -32602
_SERVER_ERROR = 500


class _Kind(NamedTuple):
    code: int
    reason: str


_KINDS = {
    "unknown-run": _Kind(-32001, "TASK_NOT_FOUND"),
    "run-erased": _Kind(-32001, "TASK_NOT_FOUND"),
    "task-not-cancelable": _Kind(-32002, "TASK_NOT_CANCELABLE"),
    "no-push-notifications": _Kind(-32003, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
    "run-ended": _Kind(-32004, "UNSUPPORTED_OPERATION"),
    "no-extended-card": _Kind(-32007, "EXTENDED_AGENT_CARD_NOT_CONFIGURED"),
    "unknown-version": _Kind(-32009, "VERSION_NOT_SUPPORTED"),
    "not-json": _Kind(-32700, "JSON_PARSE_ERROR"),
    "not-a-call": _Kind(-32600, "INVALID_REQUEST"),
    "unknown-method": _Kind(-32601, "METHOD_NOT_FOUND"),
}


def error_of(problem: Problem) -> dict[str, Any]:
    """The `error` member of an answer: what the caller did is told apart from what happened here."""
    own = _Kind(_INTERNAL if problem.status >= _SERVER_ERROR else _INVALID_PARAMS, "")
    kind = _KINDS.get(problem.code, own)
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": kind.reason or problem.code.replace("-", "_").upper(),
        "domain": "a2a-protocol.org",
        "metadata": {"status": str(problem.status)},
    }
    return {"code": kind.code, "message": problem.detail, "data": [info]}

"""The gateway from Python: runs that are started, followed and decided on."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cadre.options import missing_name

if TYPE_CHECKING:
    from cadre.api.directory import LiveAgent, LiveSandbox, LiveTool
    from cadre.api.runs import Approval, ApprovalDecision, Delivered, Edited, RunDetail, RunSummary, TraceTree
    from cadre.client.client import AsyncClient
    from cadre.client.errors import (
        ClientError,
        Conflict,
        InvalidRequest,
        NotFound,
        OutputMismatch,
        RunCancelled,
        RunFailed,
        TimedOut,
        TooManyRequests,
        Unauthorized,
        Unreachable,
    )
    from cadre.client.events import Event, follow, new_runs
    from cadre.client.run_handle import AsyncRunHandle
    from cadre.client.sync_client import Client, RunHandle
    from cadre.protocol.memory import Remembered, Selection
    from cadre.protocol.usage import Budget
    from cadre.tools.workspace import FileEntry

__all__ = [
    "Approval",
    "ApprovalDecision",
    "AsyncClient",
    "AsyncRunHandle",
    "Budget",
    "Client",
    "ClientError",
    "Conflict",
    "Delivered",
    "Edited",
    "Event",
    "FileEntry",
    "InvalidRequest",
    "LiveAgent",
    "LiveSandbox",
    "LiveTool",
    "NotFound",
    "OutputMismatch",
    "Remembered",
    "RunCancelled",
    "RunDetail",
    "RunFailed",
    "RunHandle",
    "RunSummary",
    "Selection",
    "TimedOut",
    "TooManyRequests",
    "TraceTree",
    "Unauthorized",
    "Unreachable",
    "follow",
    "new_runs",
]

_HOMES = {
    "cadre.api.directory": ("LiveAgent", "LiveSandbox", "LiveTool"),
    "cadre.api.runs": (
        "Approval",
        "ApprovalDecision",
        "Delivered",
        "Edited",
        "RunDetail",
        "RunSummary",
        "TraceTree",
    ),
    "cadre.client.client": ("AsyncClient",),
    "cadre.client.errors": (
        "ClientError",
        "Conflict",
        "InvalidRequest",
        "NotFound",
        "OutputMismatch",
        "RunCancelled",
        "RunFailed",
        "TimedOut",
        "TooManyRequests",
        "Unauthorized",
        "Unreachable",
    ),
    "cadre.client.events": ("Event", "follow", "new_runs"),
    "cadre.client.run_handle": ("AsyncRunHandle",),
    "cadre.client.sync_client": ("Client", "RunHandle"),
    "cadre.protocol.memory": ("Remembered", "Selection"),
    "cadre.protocol.messages": ("Budget",),
    "cadre.tools.workspace": ("FileEntry",),
}
"""The modules of the names: each is loaded when one of its names is used, for the command line needs few of them."""


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise missing_name(__name__, name, __all__)

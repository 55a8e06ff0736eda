"""The gateway's HTTP API from Python: requests, streams of events, following runs."""

from __future__ import annotations

from cadre.client.events import Event
from cadre.client.follow_runs import FollowingFailed, follow, new_runs
from cadre.client.gateway import Gateway
from cadre.local.exit_codes import CommandFailed

__all__ = ["CommandFailed", "Event", "FollowingFailed", "Gateway", "follow", "new_runs"]

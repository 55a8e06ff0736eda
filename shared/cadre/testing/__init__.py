"""Test doubles: a team in one process, one run that is played by hand, models for tests, and the scripted model."""

from cadre.client.errors import RunCancelled, RunFailed
from cadre.journal.arrivals import Toolset
from cadre.ports import ModelReply
from cadre.testing.blocking_team import BlockingTeam, BlockingTeamRun
from cadre.testing.models import (
    FunctionModel,
    ModelServer,
    ScriptedModel,
    TestModel,
    answer,
    call,
    running_model,
)
from cadre.testing.simulated_run import SimulatedRun, cancel, report, result, task, timer
from cadre.testing.team import CrashOutcome, Team, TeamCall, crash_points
from cadre.testing.team_run import TeamRun, TeamRunWaits

__all__ = [
    "BlockingTeam",
    "BlockingTeamRun",
    "CrashOutcome",
    "FunctionModel",
    "ModelReply",
    "ModelServer",
    "RunCancelled",
    "RunFailed",
    "ScriptedModel",
    "SimulatedRun",
    "Team",
    "TeamCall",
    "TeamRun",
    "TeamRunWaits",
    "TestModel",
    "Toolset",
    "answer",
    "call",
    "cancel",
    "crash_points",
    "report",
    "result",
    "running_model",
    "task",
    "timer",
]

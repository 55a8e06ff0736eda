"""Test doubles: a team in one process, one run that is played by hand, models for tests, and the scripted model."""

from cadre.client.errors import RunCancelled, RunFailed
from cadre.journal.arrivals import Offer
from cadre.ports import ModelReply
from cadre.testing.course import Course
from cadre.testing.crash_points import CrashOutcome, crash_points
from cadre.testing.models import FunctionModel, ScriptModel, TestModel, answer, call
from cadre.testing.records import cancel, report, result, task, timer
from cadre.testing.scripted_model import ModelServer, running_model
from cadre.testing.team import Team, TeamCall
from cadre.testing.team_run import TeamRun, TeamRunWaits

__all__ = [
    "Course",
    "CrashOutcome",
    "FunctionModel",
    "ModelReply",
    "ModelServer",
    "Offer",
    "RunCancelled",
    "RunFailed",
    "ScriptModel",
    "Team",
    "TeamCall",
    "TeamRun",
    "TeamRunWaits",
    "TestModel",
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

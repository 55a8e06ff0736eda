"""Test doubles: a team in one process, one run that is played by hand, models for tests, and the scripted model."""

from typing import Any

from cadre.client.errors import RunCancelled, RunFailed
from cadre.errors import ModelRefused, ModelUnavailable
from cadre.journal.arrivals import Toolset
from cadre.options import missing_name
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
    "ModelRefused",
    "ModelReply",
    "ModelServer",
    "ModelUnavailable",
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

_HINTS = {
    "ALLOW_MODEL_REQUESTS": "a Team asks no endpoint",
    "Case": "cadre test and cadre eval compare runs that were exported",
    "Dataset": "cadre test and cadre eval compare runs that were exported",
    "FakeClient": "with Team([…]) as team: team.start(agent, task)",
    "MockModel": "ScriptedModel",
    "Replayer": "cadre replay and cadre test decide kept runs again",
    "TestClient": "with Team([…]) as team: team.start(agent, task), as of a Client",
    "TestEnvironment": "Team: team.skip(seconds), and waits of runs take no time",
    "ToolCall": "call(name, arguments)",
    "ToolCallPart": "call(name, arguments)",
    "WorkflowEnvironment": "Team: team.skip(seconds), and waits of runs take no time",
    "auto_approve": "Team(…, approve='all')",
    "block_model_requests": "a Team asks no endpoint",
    "call_tool": "await add.call(arguments, ToolContext(run='r1'))",
    "capture_run_messages": "team.requests has what the models were asked",
    "evaluate": "cadre test and cadre eval compare runs that were exported",
    "fake_context": "ToolContext(run='r1')",
    "mock_tool": "Team([…], tools=[another function of that name])",
    "models": "TestModel, ScriptedModel, FunctionModel",
    "override": "Team([agent], model=…) asks another model",
    "run_team": "Team.from_file('team.yaml', {'boss': [answer('done')]})",
    "tool_call": "call(name, arguments)",
}
"""Names of other libraries, each with what does the same here."""


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name, __all__, _HINTS)

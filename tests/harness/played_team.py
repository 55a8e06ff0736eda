"""A shipped team in memory: its agents and tools as they are, its script in the place of a model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cadre.deploy.team_file import read_team
from cadre.engine.model_request import ModelRequest
from cadre.journal.events import RequestedCall
from cadre.ports import ModelReply
from cadre.testing import Team
from cadre_scripted_model.request import read_request
from cadre_scripted_model.script_player import read_script, render_reply

TEAMS = Path(__file__).parents[2] / "teams"


def played_team(name: str) -> Team:
    """The team of this folder. A request that no rule answers fails the run."""
    spec = read_team(TEAMS / name)
    assert spec.script is not None
    return Team(spec.agents.values(), spec.tools, player(spec.script))


def player(script: Path) -> Callable[[ModelRequest], ModelReply]:
    """Answers requests by the script, as the scripted model does."""
    rules = read_script(script)

    def reply(request: ModelRequest) -> ModelReply:
        body: dict[str, Any] = {"model": "scripted", "messages": request.messages, "tools": request.tools}
        if request.schema is not None:
            body["response_format"] = {"type": "json_schema", "json_schema": {"schema": request.schema}}
        view = read_request(body)
        chosen = rules.choose(view)
        assert chosen is not None, f"no rule for {view.last[:300]!r}"
        played = render_reply(chosen[1], view)
        calls = [RequestedCall(call.name, call.arguments) for call in played.tool_calls]
        return ModelReply(content=played.content or "", calls=calls)

    return reply

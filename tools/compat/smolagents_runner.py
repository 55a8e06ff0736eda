"""Runs tasks with smolagents' own agents, built from the team's files; a child process in its own environment.

Usage: `python smolagents_runner.py MODEL_URL TEAM_FOLDER < tasks.json > results.json`. A task is
`{agent, task, then, max_steps?, inputs?, images?, interrupts?}`, a result `{state, output, error, tokens,
steps}`: tokens of the answers of its model calls, and what its step callbacks were sent.
"""

import base64
import contextlib
import importlib.util
import io
import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2
import smolagents
import yaml
from PIL import Image
from smolagents_values import plain  # type: ignore[import-not-found]

MODEL = "smolagents"
"""Distinguishes the requests from those of the other system."""


class Team:
    """Builds a fresh agent for each task, as `smolagents` users do."""

    def __init__(self, url: str, folder: Path) -> None:
        self._model = smolagents.OpenAIServerModel(model_id=MODEL, api_base=url, api_key="none")
        self._folder = folder
        self._tools = _tools_of(folder / "tools.py")

    def agent(self, name: str) -> Any:
        document = yaml.safe_load((self._folder / f"{name}.yaml").read_text())
        spec = document["spec"]
        options: dict[str, Any] = {
            "name": document["metadata"]["name"],
            "description": spec["description"],
            "tools": [self._tools[tool] for tool in spec.get("tools", [])],
            "managed_agents": [self.agent(member) for member in spec.get("team", [])],
            "planning_interval": spec.get("planning_interval"),
            "provide_run_summary": spec.get("provide_run_summary", False),
            "max_steps": spec.get("limits", {}).get("max_steps", 20),
            "model": self._model,
            "step_callbacks": {
                smolagents.ActionStep: self._heard,
                smolagents.PlanningStep: self._heard,
            },
            "verbosity_level": smolagents.LogLevel.OFF,
        }
        if checks := spec.get("checks"):
            options["final_answer_checks"] = [_check(text) for text in checks]
        if schema := spec.get("output_schema"):
            options["final_answer_checks"] = [_check_of_form(schema)]
        if spec.get("kind") != "code":
            return smolagents.ToolCallingAgent(**options)
        code = spec.get("code", {})
        if seconds := code.get("limits", {}).get("seconds"):
            options["executor_kwargs"] = {"timeout_seconds": seconds}
        return smolagents.CodeAgent(
            use_structured_outputs_internally=code.get("structured", False),
            additional_authorized_imports=code.get("imports", []),
            **options,
        )

    def _heard(self, step: Any, agent: Any) -> None:
        """A step callback of the agent that is run, not of its members."""
        if agent is not self._agent:
            return
        if isinstance(step, smolagents.PlanningStep):
            self.steps.append(["plan"])
        elif isinstance(step, smolagents.ActionStep):
            self.steps.append([step.step_number, type(step.error).__name__ if step.error else ""])
        if self._interrupts == len(self.steps):
            agent.interrupt()

    def run(self, task: dict[str, Any]) -> dict[str, Any]:
        self.steps: list[list[Any]] = []
        self._interrupts = task.get("interrupts")
        agent = self._agent = self.agent(task["agent"])
        images = [_image(url) for url in task.get("images", [])]
        try:
            result = agent.run(
                task["task"],
                max_steps=task.get("max_steps"),
                additional_args=task.get("inputs"),
                images=images or None,
                return_full_result=True,
            )
            if task["then"]:
                result = agent.run(task["then"], reset=False, return_full_result=True)
        except smolagents.AgentError as error:
            failed = {"type": type(error).__name__, "message": str(error)}
            return {"state": "error", "output": None, "error": failed, "steps": self.steps}
        used = result.token_usage.output_tokens
        return {
            "state": result.state,
            "output": plain(result.output),
            "error": None,
            "tokens": used,
            "steps": self.steps,
        }


def _tools_of(file: Path) -> dict[str, Any]:
    """The functions of a file of Cadre tools, made tools by smolagents' decorator."""
    stand_in = types.ModuleType("cadre")
    stand_in.tool = smolagents.tool  # type: ignore[attr-defined]
    sys.modules["cadre"] = stand_in
    spec = importlib.util.spec_from_file_location("team_tools", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {value.name: value for value in vars(module).values() if isinstance(value, smolagents.Tool)}


def _check(text: str) -> Callable[..., bool]:
    """A check by expression, as the function that smolagents wants."""
    holds = jinja2.Environment().compile_expression(text.removeprefix("when:"))

    def check(answer: Any, memory: Any, agent: Any = None) -> bool:
        return bool(holds(answer=answer))

    return check


def _check_of_form(schema: dict[str, Any]) -> Callable[..., bool]:
    """A schema of an object's keys as such a function: smolagents has none for answers."""

    def check(answer: Any, memory: Any, agent: Any = None) -> bool:
        return isinstance(answer, dict) and set(schema["required"]) <= answer.keys()

    return check


def _image(url: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))


def main() -> None:
    url, folder = sys.argv[1:]
    # What an agent prints in spite of all is no part of the results.
    with contextlib.redirect_stdout(sys.stderr):
        team = Team(url, Path(folder))
        results = [team.run(task) for task in json.load(sys.stdin)]
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()

"""`cadre.Agent`: an agent that Python describes, and its first runs in one process."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack

from cadre.authoring import AgentDefinition
from cadre.client.blocking import has_loop
from cadre.client.run_options import StartOptions
from cadre.errors import SetupError
from cadre.options import explained

if TYPE_CHECKING:
    from cadre.adapters.models.model_chain import ModelChain
    from cadre.testing.team_run import TeamRun


@explained(
    {
        "tool": "give functions by tools=[…]",
        "as_tool": "give it to another agent: Agent(…, team=[agent])",
        "arun": "await agent.run(task)",
        "delegate": "Agent(…, team=[agent])",
        "generate_reply": "run_sync(task)",
        "initiate_chat": "run_sync(task)",
        "invoke": "run_sync(task)",
        "output_validator": "checks=[…], expressions over the answer",
        "register_for_llm": "give functions by tools=[…]",
        "result_validator": "checks=[…], expressions over the answer",
        "system_prompt": "give a text by instructions=…",
        "tool_plain": "give functions by tools=[…]",
        "override": "cadre.testing.Team([agent], model=…) asks another model",
        "run_stream": "run.stream() of a run that a Team or Client has started",
        "iter": "run.stream() of a run that a Team or Client has started",
        "serve": "cadre.serve(agent), or `cadre up FILE.py`",
    }
)
class Agent(AgentDefinition):
    """An agent that Python defines, with the keys of an agent file as options (docs/agents.md).

    `cadre up FILE.py` serves the agents that a module defines, `cadre.serve` one of them, and `cadre.Client` starts
    runs there, which outlive any process. `run` and `run_sync` are for a first try: they play one run in this process,
    where nothing is durable.

    Args:
        name: Letters, digits, `-` and `_`; unique in the deployment.
        instructions: What the model reads in addition to the prompts of the agent's kind.
        tools: Functions, tools, modules of tools, or names of tools that others serve.
        team: Members that the agent may ask: agents, their names, or a `Selector`.
        output_type: The form of the answer: a pydantic model, dataclass, TypedDict, msgspec struct, or `list[int]`.
        model: The model's name, a `ModelSpec`, or for tests a list of replies.

    Attributes:
        spec: Its specification, as a file would give it.
        tools: The functions that it brings.
        team: Its members that Python defines.

    Raises:
        SpecError: A key or value is wrong; the text names it and what to write.

    Examples:
        >>> from cadre.testing import answer, call
        >>> def count_words(text: str) -> int:
        ...     '''Count the words of a text.'''
        ...     return len(text.split())
        >>> replies = [call("count_words", text="to be or not to be"), answer("six")]
        >>> writer = Agent("writer", instructions="Let the tool count.", tools=[count_words], model=replies)
        >>> writer.run_sync("How many words has 'to be or not to be'?").output
        'six'
    """

    async def run(
        self,
        task: str,
        *,
        output_type: Any = None,
        timeout: float | timedelta | None = None,
        **options: Unpack[StartOptions],
    ) -> TeamRun:
        """Play a run in this process and return it once it is over: its `output`, `usage`, `events`.

        It runs in the world of `cadre.testing`, without a server: nothing is durable here, and the run ends with the
        process. Agents whose `model` is a test double ask that, the others their endpoints, as CADRE_MODEL_URL,
        CADRE_MODEL and CADRE_MODEL_KEY say or the `cadre up` of this folder. Options are those of `Client.start`.

        Raises SetupError for an agent without a model, RunFailed for a run that ended without an answer, TeamRunWaits
        for one that waits for a person, TimedOut after `timeout` seconds.
        """
        from cadre.testing.team import Team  # a module that defines agents does not load a deployment

        models, chains = _models(self)
        try:
            async with Team([self], model=models, real_time=True) as team:
                run = await team.start(self.name, task, output_type=output_type, **options)
                await run.result(timeout=timeout)
                return run
        finally:
            for chain in chains:
                await chain.close()

    def run_sync(
        self,
        task: str,
        *,
        output_type: Any = None,
        timeout: float | timedelta | None = None,
        **options: Unpack[StartOptions],
    ) -> TeamRun:
        """Play a run as `run` does, and block until it is over. Raises RuntimeError where an event loop runs."""
        if not has_loop():
            return asyncio.run(self.run(task, output_type=output_type, timeout=timeout, **options))
        raise RuntimeError("an event loop is running here: write `await agent.run(…)`")


def _models(agent: Agent) -> tuple[dict[str, Any], list[ModelChain]]:
    """Return the model of each agent, its test double or else its endpoint, and the endpoints among them. Raises
    SetupError for an agent without a model."""
    from cadre.adapters.local_stack import model_settings
    from cadre.adapters.models.model_chain import ModelChain
    from cadre.testing.evaluation import Contents

    found: dict[str, Any] = {}
    chains: list[ModelChain] = []
    for name, one in agent.everybody().items():
        if one.model is not None:
            found[name] = one.model
            continue
        chain = ModelChain(one.spec.model, model_settings(), Contents({}))
        if (lack := chain.missing()) is not None:
            raise SetupError(f"it has no model: {lack}; or give it one of cadre.testing: model=[…]", agent=name)
        chains.append(chain)
        found[name] = chain
    return found, chains

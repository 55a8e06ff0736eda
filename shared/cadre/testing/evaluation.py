"""Kept runs tried again with other files or another model: the same tasks, tools that answer from the journals, and
what came of it beside what came of it then."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, NamedTuple

import msgspec

from cadre.adapters.models.model_chain import ModelChain
from cadre.client.errors import RunCancelled, RunFailed
from cadre.engine.model_request import ModelRequest
from cadre.errors import BlobMissing
from cadre.journal import events as ev
from cadre.ports import Blobs, ModelReply, OnText
from cadre.settings import ModelSettings
from cadre.spec.agent import AgentSpec
from cadre.spec.model import ModelSpec
from cadre.spec.prices import Prices, priced
from cadre.testing.kept_run import KeptRun, RunOutcome, outcome_of, tools_from_history
from cadre.testing.team import Team
from cadre.testing.team_run import TeamRun, TeamRunWaits
from cadre.tools.loading import AnyTool

LONGEST_WAIT_SECONDS = 60.0
"""What a run waits for is really waited for so long, as an endpoint may have asked for it; beyond, the clock is moved
on."""

JUDGE = AgentSpec(
    name="judge",
    description="Compares two answers.",
    instructions=(
        "You compare two answers to one task. The first was given earlier and is not wrong for that. Judge by what the"
        " task asks for: facts, completeness, form. Wording does not count."
    ),
    output_schema={
        "type": "object",
        "properties": {
            "why": {"type": "string", "description": "One sentence: what makes the difference."},
            "verdict": {
                "enum": ["better", "same", "worse"],
                "description": "The second answer beside the first.",
            },
        },
        "required": ["why", "verdict"],
        "additionalProperties": False,
    },
)


class Verdict(msgspec.Struct, frozen=True):
    """What a judge says of the answer of now beside that of then."""

    verdict: Literal["better", "same", "worse"]
    why: str


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """A kept run, tried again."""

    before: RunOutcome
    now: RunOutcome
    same_answer: bool
    """Whether both answers are equal as JSON."""
    beyond_history: list[str] = []
    """Names of tools that were called otherwise than then and did not answer, each once."""
    verdict: Verdict | None = None


class Contents:
    """ports.Blobs on a dict of contents by their references."""

    def __init__(self, held: Mapping[str, bytes]) -> None:
        self.held = dict(held)

    async def put(self, data: bytes) -> str:
        ref = f"blob:{hashlib.sha256(data).hexdigest()}"
        self.held[ref] = data
        return ref

    async def get(self, ref: str) -> bytes:
        if ref not in self.held:
            raise BlobMissing(ref)
        return self.held[ref]


class EndpointModel:
    """ports.Model over the endpoint of a spec, or of the settings, whose answers have their price."""

    def __init__(self, spec: ModelSpec, settings: ModelSettings, prices: Prices, blobs: Blobs) -> None:
        self._spec, self._prices = spec, prices
        self._chain = ModelChain(spec, settings, blobs)

    async def complete(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        reply = await self._chain.complete(request, on_text)
        price = self._spec.price or self._prices.of(reply.model or self._spec.name)
        return reply if price is None else msgspec.structs.replace(reply, usage=priced(reply.usage, price))

    async def close(self) -> None:
        """Closes its connections."""
        await self._chain.close()


ModelMaker = Callable[[Blobs], EndpointModel]
"""Makes a model that reads its images there."""


class Candidate(NamedTuple):
    """What kept runs are tried with."""

    agents: Sequence[AgentSpec]
    tools: Sequence[AnyTool]
    models: Mapping[str, ModelMaker]
    """By the name of the agent."""
    live: bool = True
    """Whether read-only tools are called where the kept run made no such call."""
    seconds: float = 600.0
    """What a run may take."""


async def tried(run: KeptRun, candidate: Candidate) -> Trial:
    """Runs the task of a kept run in a team of the candidate's agents.

    Whatever would wait for a person is agreed to: it has no effect.
    """
    tools, contents = tools_from_history(run, candidate.tools, live=candidate.live), Contents(run.blobs)
    async with (
        _models(candidate.models, contents) as models,
        Team(candidate.agents, tools, models, blobs=contents.held) as team,
    ):
        now = await _outcome(team, run, candidate.seconds)
        return Trial(
            before=run.outcome,
            now=now,
            same_answer=_text(now.output) == _text(run.outcome.output),
            beyond_history=_beyond_history(team),
        )


@asynccontextmanager
async def _models(
    makers: Mapping[str, ModelMaker], contents: Contents
) -> AsyncIterator[dict[str, EndpointModel]]:
    models = {name: make(contents) for name, make in makers.items()}
    try:
        yield models
    finally:
        for model in models.values():
            await model.close()


async def judged(task: str, trial: Trial, make_model: ModelMaker) -> Verdict | None:
    """What a model says of the two answers; None where it says nothing that counts."""
    text = (
        f"The task:\n{task}\n\nThe first answer:\n{_text(trial.before.output)}\n\n"
        f"The second answer:\n{_text(trial.now.output)}"
    )
    async with _models({JUDGE.name: make_model}, Contents({})) as models, Team([JUDGE], [], models) as team:
        try:
            return msgspec.convert(await team.run(JUDGE.name, text), Verdict)
        except (RunFailed, RunCancelled, TeamRunWaits, msgspec.ValidationError):
            return None


async def _outcome(team: Team, kept: KeptRun, seconds: float) -> RunOutcome:
    task = kept.task
    try:
        async with asyncio.timeout(seconds):
            run = await team.start(
                task.agent,
                task.task,
                inputs=task.additional_args,
                files=kept.files,
                max_steps=task.max_steps,
                images=task.images,
                budget=task.budget,
            )
            await _to_its_end(team, run)
    except TimeoutError:
        return RunOutcome(state="error", error=f"TimeoutError: no end within {seconds:g} s")
    except TeamRunWaits as waits:
        return RunOutcome(state="error", error=f"Waits: {waits}")
    end = next(event for event in run.events if isinstance(event, ev.RunFinished))
    return outcome_of(end, len(team.calls))


async def _to_its_end(team: Team, run: TeamRun) -> None:
    while not run.is_over:
        if not team.is_idle():
            await team.changed()
        elif run.held:
            for call in run.held:
                await run.approve(call.id)
        elif (left := team.next_in()) is None:
            raise TeamRunWaits(f"the run is {run.state.phase.value}, and nobody is there to go on with it")
        elif left > LONGEST_WAIT_SECONDS:
            team.skip_to_next()
        else:
            await team.changed()


def _beyond_history(team: Team) -> list[str]:
    said = "it is not called in an evaluation"
    found = [call.tool for call in team.calls if call.error is not None and said in call.error.message]
    return list(dict.fromkeys(found))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value)).decode()

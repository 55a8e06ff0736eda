"""Kept runs tried again with other files or another model: the same tasks, tools that answer from the journals, and the
outcome now next to the outcome then."""

import asyncio
import hashlib
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec

from cadre.adapters.models.model_chain import ModelChain
from cadre.client.errors import RunCancelled, RunFailed
from cadre.engine.model_request import ModelRequest
from cadre.errors import BlobMissing
from cadre.journal import events as ev
from cadre.journal.events import SignalReceived
from cadre.ports import Blobs, ModelReply, OnText
from cadre.prompting.prompts import Prompts
from cadre.settings import ModelSettings
from cadre.spec.agent import AgentSpec
from cadre.spec.kinds import once
from cadre.spec.model import ModelSpec
from cadre.spec.prices import Prices, priced
from cadre.testing.kept_run import (
    Below,
    KeptRun,
    Policy,
    RunOutcome,
    call_key,
    outcome_of,
    tools_from_history,
)
from cadre.testing.repeated_acts import ModelInTurn, RepeatedActs, run_at
from cadre.testing.team import Team
from cadre.testing.team_run import TeamRun, TeamRunWaits
from cadre.tools.loading import AnyTool

LONGEST_WAIT_SECONDS = 60.0
"""The longest real wait of a run, as an endpoint may have asked for it; beyond, the clock is moved on."""


@once
def judge_spec() -> AgentSpec:
    """Return the agent that compares two answers where no other is named."""
    return AgentSpec(
        name="judge",
        description="Compares two answers.",
        instructions=(
            "You compare two answers to one task. The first was given earlier and is not wrong for that. Judge by"
            " what the task asks for: facts, completeness, form. Wording does not count."
        ),
        output_schema={
            "type": "object",
            "properties": {
                "why": {"type": "string", "description": "One sentence: what makes the difference."},
                "verdict": {
                    "enum": ["better", "same", "worse"],
                    "description": "The second answer next to the first.",
                },
            },
            "required": ["why", "verdict"],
            "additionalProperties": False,
        },
    )


class Verdict(msgspec.Struct, frozen=True):
    """A judge's verdict on the present answer, compared with the earlier one."""

    verdict: Literal["better", "same", "worse"]
    why: str


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """A kept run, tried again."""

    before: RunOutcome | None = None
    """None for a task of which nothing is known."""
    now: RunOutcome
    same_answer: bool | None = None
    """True if both answers are equal as JSON; None where there was none to compare with."""
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
        if price is None:
            return reply
        return msgspec.structs.replace(reply, usage=priced(reply.usage, price, reply.cached_tokens))

    async def close(self) -> None:
        """Close its connections."""
        await self._chain.close()


ModelMaker = Callable[[Blobs], EndpointModel]
"""Makes a model that reads its images there."""


class Candidate(NamedTuple):
    """The files or the model that kept runs are tried with."""

    agents: Sequence[AgentSpec]
    tools: Sequence[AnyTool]
    models: Mapping[str, ModelMaker]
    """By the name of the agent."""
    policies: Mapping[str, Policy] = MappingProxyType({})
    """The policies for calls of tools, by their names; `*` stands for the others."""
    seconds: float = 600.0
    """The time that a run may take."""
    prompts: Mapping[str, Prompts] = MappingProxyType({})
    """In place of those that the agents' specs name, by the names of the agents."""


async def tried(run: KeptRun, candidate: Candidate) -> Trial:
    """Runs the task of a kept run in a team of the candidate's agents.

    What a person said of a call is said again of the same call; everything else that would wait for a person is agreed
    to: it has no effect. What people sent to the run and those below it, or edited of them, is sent and edited again.
    Raises NotDoneAgain.
    """
    acts, contents = RepeatedActs(run.acts), Contents(run.blobs)
    tools = tools_from_history(run, candidate.tools, candidate.policies, acts.turn)
    async with _models(candidate.models, contents) as made:
        models = {name: ModelInTurn(model, acts) for name, model in made.items()}
        async with Team(
            candidate.agents, tools, models, blobs=contents.held, prompts=candidate.prompts
        ) as team:
            now = await _outcome(team, run, acts, candidate.seconds)
    return Trial(
        before=run.outcome,
        now=now,
        same_answer=_text(now.output) == _text(run.outcome.output) if run.outcome is not None else None,
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


class Judge(NamedTuple):
    """The judge of answers: an agent whose answer is a `Verdict`, and its model."""

    agent: AgentSpec
    model: ModelMaker


async def judged(task: str, trial: Trial, judge: Judge) -> Verdict | None:
    """Return what a judge says of the two answers; None where it says nothing that counts."""
    then = trial.before.output if trial.before is not None else None
    text = (
        f"The task:\n{task}\n\nThe first answer:\n{_text(then)}\n\n"
        f"The second answer:\n{_text(trial.now.output)}"
    )
    name = judge.agent.name
    async with _models({name: judge.model}, Contents({})) as models, Team([judge.agent], [], models) as team:
        try:
            return msgspec.convert(await team.run(name, text), Verdict)
        except (RunFailed, RunCancelled, TeamRunWaits, msgspec.ValidationError):
            return None


async def _outcome(team: Team, kept: KeptRun, acts: RepeatedActs, seconds: float) -> RunOutcome:
    task = kept.task
    run = await team.begin(
        task.agent,
        task.task,
        inputs=task.inputs,
        files=kept.files,
        max_steps=task.max_steps,
        images=task.images,
        budget=task.budget,
        terms=task.terms,
        origin=task.origin,
    )
    acts.begin(team, run)
    try:
        async with asyncio.timeout(seconds):
            await _to_its_end(team, run, kept, acts)
    except TimeoutError:
        put_off = [event.reason for event in run.events if isinstance(event, ev.ModelDeferred)][-1:]
        why = "; ".join([f"TimeoutError: no end within {seconds:g} s", *put_off])
        return RunOutcome(state="error", error=why)
    except TeamRunWaits as waits:
        return RunOutcome(state="error", error=f"Waits: {waits}")
    end = next(event for event in run.events if isinstance(event, ev.RunFinished))
    return outcome_of(end, len(team.calls))


async def _to_its_end(team: Team, run: TeamRun, kept: KeptRun, acts: RepeatedActs) -> None:
    said: dict[tuple[str, bytes], deque[ev.ApprovalDecided]] = defaultdict(deque)
    for asked, decided in kept.decisions:
        said[asked.name, call_key(asked.arguments)].append(decided)
    signals = list(kept.signals)
    while not run.is_over:
        if acts.is_due:
            await acts.do_next()
        elif not team.is_idle():
            await team.changed()
        elif run.held:
            for call in run.held:
                words = said[call.name, call_key(call.arguments)]
                await _say(run, call.id, words.popleft() if words else None)
        elif (signal := _next_signal(team, run, signals)) is not None:
            to, one = signal
            await to.signal(one.name, one.payload)
        elif (left := team.next_in()) is None:
            raise TeamRunWaits(f"the run is {run.run.phase.value}, and no process is there to continue it")
        elif left > LONGEST_WAIT_SECONDS:
            await team.skip_to_next()
        else:
            await team.changed()
    acts.check_all_done()


def _next_signal(
    team: Team, run: TeamRun, left: list[tuple[Below, SignalReceived]]
) -> tuple[TeamRun, SignalReceived] | None:
    """Take the first whose run is there."""
    for place, (below, signal) in enumerate(left):
        to = run_at(team, run, below)
        if to is not None and not to.is_over:
            del left[place]
            return to, signal
    return None


async def _say(run: TeamRun, call: str, word: ev.ApprovalDecided | None) -> None:
    """Decide on a call as a person did then; agree to it if no person did."""
    match word:
        case ev.ApprovalDecided(verdict="rejected" | "expired"):
            await run.reject(call, feedback=word.feedback)
        case ev.ApprovalDecided(verdict="corrected", arguments=dict() as arguments):
            await run.correct(call, arguments, tool=word.name, replace=True, feedback=word.feedback)
        case ev.ApprovalDecided():
            await run.approve(call, edits=word.edits, feedback=word.feedback)
        case None:
            await run.approve(call)


def _beyond_history(team: Team) -> list[str]:
    found = [call.tool for call in team.calls if call.error is not None and call.error.code == "not-called"]
    return list(dict.fromkeys(found))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value)).decode()

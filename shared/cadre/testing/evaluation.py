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
from cadre.errors import BlobMissing, CadreError
from cadre.journal import events as ev
from cadre.journal.events import SignalReceived
from cadre.ports import Blobs, Model, ModelReply, OnText
from cadre.prompting.prompts import Prompts
from cadre.settings import ModelSettings
from cadre.spec.agent import AgentSpec
from cadre.spec.kinds import once
from cadre.spec.model import ModelSpec
from cadre.spec.prices import Prices, priced
from cadre.testing.kept_run import (
    Act,
    Below,
    KeptAct,
    KeptRun,
    Policy,
    RunOutcome,
    call_key,
    delegations,
    outcome_of,
    reached,
    tools_from_history,
)
from cadre.testing.team import Team
from cadre.testing.team_run import TeamRun, TeamRunWaits
from cadre.tools.loading import AnyTool


class NotDoneAgain(CadreError):
    """A person's act on a run cannot be repeated now: the outcome would be no comparison."""

    def __init__(self, kept: KeptAct, why: str) -> None:
        act, member = kept.act, kept.below[-1].member if kept.below else ""
        if isinstance(act, ev.MessageReceived):
            to = f" to {member}" if member else ""
            what = f"said {act.text[:200]!r}{to} then, which could not be said again"
        else:
            of = f" the work of {member}" if member else ""
            what = f"edited{of} then {msgspec.json.encode(act.operations).decode()}, which cannot be done now"
        super().__init__(f"{act.sender or 'somebody'} {what}: {why}")


class RepeatedActs:
    """The acts that are still to be done, to each run in their order."""

    def __init__(self, acts: Sequence[KeptAct]) -> None:
        self._left = defaultdict[Below, deque[KeptAct]](deque)
        for one in acts:
            self._left[one.below].append(one)
        self._began: tuple[Team, TeamRun] | None = None
        self._done = asyncio.Event()

    def begin(self, team: Team, run: TeamRun) -> None:
        """From now on they are done to this run, and to those below it."""
        self._began = team, run

    @property
    def is_due(self) -> bool:
        """Return whether one of the runs is as far as that of then was at its next one."""
        return self._due() is not None

    async def turn(self) -> None:
        """Wait while one is due: the answer of a model or a tool would carry the run past it."""
        while self._began is not None and self.is_due:
            # The process that waits here has not come to rest, so the team is not notified.
            self._began[0].note_change()
            await self._done.wait()

    async def do_next(self) -> None:
        """Do the next one that is due. Raises NotDoneAgain."""
        if self._began is None or (due := self._due()) is None:
            return
        run, kept = due
        while not await _is_done(self._began[0], run, kept):
            pass
        self._left[kept.below].popleft()
        self._done.set()
        self._done = asyncio.Event()

    def check_all_done(self) -> None:
        """Raise NotDoneAgain where the run came to an answer without one of them."""
        if self._began is None:
            return
        team, root = self._began
        result = root.run.result
        left = next((acts[0] for acts in self._left.values() if acts), None)
        if left is not None and result is not None and result.state == "success":
            is_begun = run_at(team, root, left.below) is not None
            why = "the run came to its answer before" if is_begun else "it was not given that work"
            raise NotDoneAgain(left, why)

    def _due(self) -> tuple[TeamRun, KeptAct] | None:
        if self._began is None:
            return None
        for below, acts in self._left.items():
            run = run_at(*self._began, below) if acts else None
            if run is not None and _is_as_far(run, acts[0]):
                return run, acts[0]
        return None


def run_at(team: Team, run: TeamRun, below: Below) -> TeamRun | None:
    """Return the run at the end of this way; None as long as it has not begun."""
    for one in below:
        call = delegations(run.events).get(one)
        if call is None:
            return None
        run = TeamRun(team, call, one.member)
    return run


def _is_as_far(run: TeamRun, kept: KeptAct) -> bool:
    events = run.events
    can_take = bool(events) if isinstance(kept.act, ev.MessageReceived) else run.has_editable
    return can_take and reached(events) >= kept.after


class ModelInTurn:
    """ports.Model whose answers wait their turn."""

    def __init__(self, model: Model, acts: RepeatedActs) -> None:
        self._model, self._acts = model, acts

    async def complete(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        reply = await self._model.complete(request, on_text)
        await self._acts.turn()
        return reply


async def _is_done(team: Team, run: TeamRun, kept: KeptAct) -> bool:
    """Return whether the run has taken it; not when what was to be edited has changed meanwhile. Raises
    NotDoneAgain.
    """
    before, act = len(_taken(run)), kept.act
    if isinstance(act, ev.MessageReceived):
        await run.tell(act.text, mode=act.mode)
    else:
        await run.edit(there := run.editable(), act.operations)
    while len(_taken(run)) == before and not run.is_over:
        await team.changed()
    match _taken(run)[before:]:
        case [ev.EditRefused(version=version, reason=reason), *_]:
            if version in (None, there.version):
                raise NotDoneAgain(kept, reason)
            return False
        case []:
            raise NotDoneAgain(kept, "the run has ended")
        case _:
            return True


def _taken(run: TeamRun) -> list[ev.AnyEvent]:
    return [event for event in run.events if isinstance(event, Act | ev.EditRefused)]


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
        async with Team(candidate.agents, tools, models, blobs=contents.held, prompts=candidate.prompts) as team:
            now = await _outcome(team, run, acts, candidate.seconds)
    return Trial(
        before=run.outcome,
        now=now,
        same_answer=_text(now.output) == _text(run.outcome.output) if run.outcome is not None else None,
        beyond_history=_beyond_history(team),
    )


@asynccontextmanager
async def _models(makers: Mapping[str, ModelMaker], contents: Contents) -> AsyncIterator[dict[str, EndpointModel]]:
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
    text = f"The task:\n{task}\n\nThe first answer:\n{_text(then)}\n\nThe second answer:\n{_text(trial.now.output)}"
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

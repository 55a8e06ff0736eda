"""The rules for long-term memory, of summaries and of answers that are checked."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from cadre.journal import events as ev
from cadre.journal.run import Memory, Run
from cadre.kinds.code.records import BlockStarted
from cadre.protocol.memory import REMEMBER
from cadre.protocol.messages import ToolResult
from cadre.protocol.topology import result_id, tree_of
from simulation.history import Chronicle, Violation
from simulation.tools import CHECK, is_passed

if TYPE_CHECKING:
    from simulation.world import World

LEFT = "what a finished step has left is handed to the memory service"
KEPT = "what is handed to the memory service is kept once"
RECALLED = "a run knows what one answer of the memory service said"
COVERS = "a summary covers more than the one before"
WITHIN = "no request outgrows its model's context"
FOLLOWS = "another model is asked once the one before has failed, in the order of the spec"

PASSED = "an answer counts once it has passed its checks"


# --- what is left


def what_is_left_is_kept_once(world: World) -> None:
    for name, chronicle in world.history.runs.items():
        for call in _to_be_left(chronicle):
            if call not in world.history.calls:
                raise Violation(LEFT, f"{call} of {name} was not")
    for call, sent in world.history.calls.items():
        if sent.tool != REMEMBER:
            continue
        kept = world.recollections.of(call)
        world.trace.counts["remembered"] += len(kept)
        if len(kept) != 1 and not (not kept and call in world.history.given_up):
            raise Violation(KEPT, f"{call} was kept {len(kept)} times")
        if any(one.text != sent.arguments["text"] for one in kept):
            raise Violation(KEPT, f"{call} was kept as something else")


def _to_be_left(chronicle: Chronicle) -> list[str]:
    """Calls that the journal gives cause for, read without the loop's own eyes."""
    run = chronicle.run
    wanted = run.spec.memory.remember if run.spec is not None else "nothing"
    calls, did_something = [], False
    for event in chronicle.events if wanted != "nothing" else ():
        match event:
            case ev.ToolCalled(tool=tool):
                did_something = did_something or tool != CHECK
            case ev.DelegateStarted() | BlockStarted():
                did_something = True
            case ev.StepFinished(step=step):
                if did_something and wanted == "steps":
                    calls.append(f"{run.id}_{step}_step")
                did_something = False
            case ev.RunFinished(state="success", steps=step):
                calls.append(f"{run.id}_{step}_answer")
    return calls


# --- what is recalled


def what_is_recalled_is_one_answer(world: World) -> None:
    for name, chronicle in world.history.runs.items():
        seen = Counter(type(event) for event in chronicle.events)
        if seen[ev.MemoryRecalled] > seen[ev.MemoryAsked] or seen[ev.MemoryAsked] > 1:
            raise Violation(RECALLED, f"{name} asked {seen[ev.MemoryAsked]} times")
        asks = next((event for event in chronicle.events if isinstance(event, ev.MemoryAsked)), None)
        for event in chronicle.events:
            if isinstance(event, ev.ModelCalled) and asks is not None and not seen[ev.MemoryRecalled]:
                raise Violation(RECALLED, f"{name} thinks before it knows what it has asked for")
            if isinstance(event, ev.MemoryRecalled):
                world.trace.counts["recalled"] += bool(event.memories)
                world.trace.counts["not-recalled"] += event.error is not None
                _is_one_answer(chronicle, event)
                _may_be_seen(world, chronicle.run, event.memories)


def _is_one_answer(chronicle: Chronicle, event: ev.MemoryRecalled) -> None:
    sent = [one for one in chronicle.records[result_id(event.call)] if isinstance(one, ToolResult)]
    if event.error is not None:
        if not sent or any(one.error == event.error for one in sent) or "did not answer" in event.error.message:
            return
        raise Violation(RECALLED, f"{event.call} failed by {event.error}, which nobody said")
    known = [_about(one) for one in event.memories]
    answers = [
        [(hit["run"], hit["agent"], hit["scope"], hit["at"]) for hit in one.output["hits"]]
        for one in sent
        if one.error is None
    ]
    if known not in answers:
        raise Violation(RECALLED, f"{event.call} brought {known}, and the answers were {answers}")


def _about(memory: Memory) -> tuple[str, str, str, float]:
    return memory.run, memory.agent, memory.scope, memory.at


def _may_be_seen(world: World, run: Run, memories: list[Memory]) -> None:
    for one in memories:
        shared = {
            "run": one.run.split("_")[0] == run.tree,
            "agent": one.agent == run.agent,
            "team": True,
            "user": world.recollections.user_of(one.run) == _user(world, run.id),
        }
        if not shared[one.scope]:
            raise Violation(RECALLED, f"{run.id} knows what {one.run} has kept for {one.scope}")


def _user(world: World, run: str) -> str | None:
    return next(order.user for order in world.scenario.orders if order.run == tree_of(run))


# --- room


def summaries_go_on(world: World) -> None:
    for name, chronicle in world.history.runs.items():
        covers = 0
        for event in chronicle.events:
            if isinstance(event, ev.HistorySummarized):
                world.trace.counts["summary"] += 1
                world.trace.counts["later-summary"] += covers > 0
                if event.covers <= covers:
                    raise Violation(COVERS, f"{name}: {event.covers} steps after {covers}")
                covers = event.covers


def no_request_outgrows_its_context(world: World) -> None:
    if world.outgrown:
        raise Violation(WITHIN, world.outgrown[0])


# --- checks


def answers_count_once_they_have_passed(world: World) -> None:
    for name, chronicle in world.history.runs.items():
        run = chronicle.run
        proposed: ev.AnswerProposed | None = None
        verdicts: dict[str, str] = {}
        for event in chronicle.events:
            if isinstance(event, ev.AnswerProposed):
                proposed, verdicts = event, {}
            elif isinstance(event, ev.AnswerChecked):
                verdicts[event.call] = event.problem
                world.trace.counts["checked"] += 1
                if not event.problem and not is_passed(event.call):
                    raise Violation(PASSED, f"{event.call} of {name} did not pass")
        if run.spec is None or not run.spec.checks or run.result is None or run.result.state != "success":
            continue
        if proposed is None or proposed.answer != run.result.output:
            raise Violation(PASSED, f"{name} answered what was never proposed")
        if verdicts.keys() != proposed.checks.keys() or any(verdicts.values()):
            raise Violation(PASSED, f"{name} answered, and the verdicts are {verdicts}")


def another_model_is_asked_for_a_reason(world: World) -> None:
    """A call goes to the next of the agent's models when one has failed, and to the first again some minutes later."""
    for name, chronicle in world.history.runs.items():
        spec, asked = chronicle.run.spec, 0
        for event in chronicle.events:
            if not isinstance(event, ev.ModelCalled) or spec is None:
                continue
            models = 1 + len(spec.model.fallbacks)
            follows = event.fallback == (asked + 1) % models and event.reason
            if event.fallback != asked and not follows and event.fallback:
                raise Violation(FOLLOWS, f"{name} asks model {event.fallback} of {models} behind {asked}")
            world.trace.counts["fell-back"] += bool(follows)
            asked = event.fallback

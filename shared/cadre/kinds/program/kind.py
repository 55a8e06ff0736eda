"""The kind `program`: a function of any framework runs in a process, and what it asks of its model, of tools and of
members is done and recorded here. After a death it runs again, and is answered from the record up to where it died."""

from collections.abc import Sequence
from typing import Any

from cadre.engine.budget import share
from cadre.engine.calls.fold_calls import Opening
from cadre.engine.chat import functions
from cadre.engine.commands import Command, Send
from cadre.engine.draft import Draft
from cadre.engine.kind import Absent, Chat, Kind, Signalled, StepAccount
from cadre.engine.model_request import ModelRequest
from cadre.journal import events as ev
from cadre.journal.arrivals import ModelReplied
from cadre.journal.parts import JournalEvent, KindStep
from cadre.journal.run import ActionStep, CallState, Run
from cadre.kinds.code.fold import reply_in
from cadre.kinds.code.records import copied
from cadre.kinds.program.records import (
    KIND,
    ProgramAsked,
    ProgramEnded,
    ProgramStarted,
    ProgramState,
    ProgramStep,
)
from cadre.protocol.code import MESSAGES, CodeExchange, CodeReply, asks_model, bodies_of
from cadre.protocol.messages import CodeCall, CodeFinished, CodeYielded, ErrorInfo, Message
from cadre.protocol.topology import code_call_id, program_id
from cadre.protocol.usage import Usage
from cadre.spec.names import FINAL_ANSWER
from cadre.spec.program import pool_of, program_of


class ProgramKind(Kind):
    """`cadre.engine.kind.Kind` for agents that are programs."""

    guided = False

    def begin(self, draft: Draft) -> None:
        if not program_of(draft.spec).main:
            text = f"The file of {draft.run.agent!r} names no function: set program.main."
            draft.stop("error", error=ErrorInfo("program-failed", text))
            return
        draft.begin_step(draft.first_step, KIND)
        draft.note(ProgramStarted(program=program_of(draft.spec).main))

    def arrived(self, draft: Draft, what: Message | Signalled | Absent) -> bool:
        match what:
            case CodeYielded() if _is_awaited(draft.run, what) and what.calls:
                draft.note(copied(ProgramAsked, what))
                self._take_up(draft)
            case CodeFinished() if _is_awaited(draft.run, what):
                draft.note(copied(ProgramEnded, what))
                self._end(draft, what)
            case _:
                return False
        return True

    def _take_up(self, draft: Draft) -> None:
        """Make the calls that the program has asked for; its model is asked behind them."""
        run = draft.run
        left = share(run, 1)
        if run.budget is not None and left is not None and left.calls is not None and left.calls <= 0:
            text = f"The budget of {run.budget.calls} requests by the program is used up."
            draft.stop("error", draft.found(), ErrorInfo("budget", text))
            return
        calls = [one.arguments for one in state_of(run).asked if not asks_model(one)]
        if calls:
            draft.call([ev.RequestedCall(one["tool"], one["arguments"]) for one in calls])
        else:
            self._ask(draft)

    def _ask(self, draft: Draft) -> None:
        """Ask the model for the first request that has no answer yet, one at a time; each is a step."""
        if _open_request(state_of(draft.run)) is None:
            return
        step = draft.run.current
        if step is None or step.calls or (isinstance(step.own, ProgramStep) and step.own.asked):
            draft.end_step()
            draft.begin_step(draft.run.step + 1, KIND)
        draft.ask(KIND, draft.step)

    def answered(self, draft: Draft, reply: ModelReplied) -> None:
        self._ask(draft)

    def settled(self, draft: Draft, calls: Sequence[CallState]) -> None:
        if draft.run.current is not None and not draft.run.open_calls():
            self._ask(draft)

    def _end(self, draft: Draft, ended: CodeFinished) -> None:
        if ended.error is not None:
            draft.end_step(ended.error)
            draft.stop("error", draft.found(), ended.error)
        else:
            draft.answer(ended.output)

    def go_on(self, draft: Draft, error: ErrorInfo | None = None) -> None:
        """The answer was turned down: the program has returned, and would return the same again."""
        error = error or ErrorInfo("not-passed", "The answer did not pass.")
        draft.end_step(error)
        draft.stop("error", error=error)

    def fold(self, run: Run, event: JournalEvent, n: int, at: float) -> None:
        if isinstance(event, ev.RunAccepted):
            taken = [step.own for step in event.prefix if isinstance(step, ActionStep)]
            known = [one for own in taken if isinstance(own, ProgramStep) for one in own.exchanges]
            run.own = ProgramState(exchanges=known)
            return
        state = state_of(run)
        match event:
            case ev.StepStarted() if run.current is not None:
                run.current.own = ProgramStep()
            case ProgramStarted():
                state.since, state.at = n, at
            case ProgramAsked():
                state.since, state.asked, state.clock = 0, event.calls, event.clock
                state.calls, state.replies = [], {}
                run.usage += event.describe().used or Usage()
            case ProgramEnded() | ev.RunFinished():
                state.since, state.asked = 0, []
            case ev.ModelCalled() if run.current is not None and isinstance(run.current.own, ProgramStep):
                run.current.own.asked = True
            case ev.ModelAnswered():
                if (place := _open_request(state)) is not None:
                    _reply(run, state, place, CodeReply(value=event.raw), n, at)
            case _ if state.asked:
                _take_call(run, state, event, n, at)
            case _:
                pass

    def owed(self, run: Run, since: int) -> list[Command]:
        state, task = state_of(run), run.task
        if not state.since or state.since < since or task is None or run.spec is None:
            return []
        block = program_id(run.id)
        return [
            Send(
                CodeCall(
                    id=code_call_id(block, len(state.exchanges)),
                    tree=run.tree,
                    run=run.id,
                    at=state.at,
                    agent=run.agent,
                    pool=pool_of(run.agent),
                    block=block,
                    code=program_of(run.spec).main,
                    # A copy: the run may move on before the call is on its way.
                    exchanges=list(state.exchanges),
                    inputs={"task": task.task, "arguments": task.inputs, "tools": _offered(run)},
                    deadline=run.deadline,
                    trace=task.trace,
                )
            )
        ]

    def request(self, run: Run, purpose: str, chat: Chat) -> ModelRequest:
        state = state_of(run)
        place = _open_request(state)
        assert place is not None
        earlier = [one for exchange in state.exchanges for one in exchange.calls]
        api, body = bodies_of([*earlier, *state.asked[: place + 1]])[-1]
        said = body.get(MESSAGES[api])
        messages = said if isinstance(said, list) else [{"role": "user", "content": str(said)}]
        return ModelRequest(messages=messages, raw=body, api=api)

    def reads_calls(self, run: Run) -> bool:
        """The program reads what its calls came to, whole."""
        return False

    def account(self, own: KindStep) -> StepAccount | None:
        return None


def state_of(run: Run) -> ProgramState:
    """Return the kind's state of the run; an empty one before it has begun."""
    return run.own if isinstance(run.own, ProgramState) else ProgramState()


def _is_awaited(run: Run, answer: CodeYielded | CodeFinished) -> bool:
    """Return True if the program host owes this; the answer of a second one to the same question is not awaited."""
    state = state_of(run)
    place = program_id(run.id), len(state.exchanges)
    return state.since > 0 and (answer.block, answer.exchange) == place


def _open_request(state: ProgramState) -> int | None:
    """Return the place of the first model request without an answer, or None."""
    places = (place for place, one in enumerate(state.asked) if asks_model(one))
    return next((place for place in places if place not in state.replies), None)


def _take_call(run: Run, state: ProgramState, event: JournalEvent, n: int, at: float) -> None:
    """A call is noted as it begins, and again with its outcome."""
    places = [place for place, one in enumerate(state.asked) if not asks_model(one)]
    if isinstance(event, Opening) and event.call not in state.calls and len(state.calls) < len(places):
        state.calls.append(event.call)
    found = reply_in(run, event)
    if found is not None and found[0] in state.calls:
        _reply(run, state, places[state.calls.index(found[0])], found[1], n, at)


def _reply(run: Run, state: ProgramState, place: int, reply: CodeReply, n: int, at: float) -> None:
    """With its last reply the exchange is complete, and the program host owes what comes next."""
    if place in state.replies:
        return
    state.replies[place] = reply
    if len(state.replies) < len(state.asked):
        return
    replies = [state.replies[one] for one in range(len(state.asked))]
    done = CodeExchange(calls=state.asked, replies=replies, clock=state.clock)
    state.exchanges.append(done)
    if run.current is not None and isinstance(run.current.own, ProgramStep):
        run.current.own.exchanges.append(done)
    state.asked, state.clock, state.calls, state.replies = [], [], [], {}
    state.since, state.at = n, at


def _offered(run: Run) -> list[dict[str, Any]]:
    """Return the tools and members that the program may call, each with `name`, `description` and `parameters`."""
    found = [one["function"] for one in functions(run)]
    return [one for one in found if one["name"] != FINAL_ANSWER]


PROGRAM = ProgramKind()

"""From a turn to the run that answers it: begun, gone on with, decided on, steered, or found again."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from cadre.adapters.nats.reading.history import History
from cadre.adapters.nats.sessions import NatsSessions, SessionTurn
from cadre.api.runs import RunSummary
from cadre.errors import Fenced
from cadre.ports import Clock
from cadre.protocol.caller_terms import CallerTerms
from cadre.protocol.topology import run_id_of, tree_of
from cadre_gateway.doors.following import Answers
from cadre_gateway.doors.openai.turn import Turn
from cadre_gateway.doors.progress import Place, Progress, answer_text
from cadre_gateway.doors.rulings import ASK_USER, said
from cadre_gateway.doors.verdict_words import PersonsWord, word_in
from cadre_gateway.index.run_filter import RunFilter
from cadre_gateway.index.run_summary import shortened
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.requests.body import Submission, checked_submission
from cadre_gateway.requests.problems import Problem, answer_deadline, invalid
from cadre_gateway.starting.submit import Submitter
from cadre_gateway.steering.decide import ApprovalDecisions
from cadre_gateway.steering.steer import Steering

_NOT_FOUND = 404
_SEARCHED_RUNS = 2_000
"""The newest runs of an agent among which the one is looked for that a chat goes on from."""
_READ_RUNS = 4
_CALL = re.compile(r"`([A-Za-z0-9-]{1,64}(?:_\d{1,9}_\d{1,9}){1,64})`")
"""A call, as a question to a person names it."""


@dataclass(frozen=True)
class Conversations:
    """Finds or begins the runs of turns. Every method raises Problem, RetryableError."""

    answers: Answers
    lookup: RunLookup
    history: History
    turns: NatsSessions
    submitter: Submitter
    decisions: ApprovalDecisions
    steering: Steering
    clock: Clock

    async def place_of(self, turn: Turn) -> Place:
        """Where the answer to the turn is told; the same turn, sent again, finds the place that it had before."""
        if turn.results or turn.words:
            return await self._answer_calls(turn)
        if turn.has_own_key:
            run = run_id_of(turn.agent, turn.key.key)
            task = await self.history.task(run, run)
            if task is not None:
                turn.key.check(task.request)
                return Place(run)
        if turn.continues is not None:
            await self.answers.check(turn.continues)
            return await self._go_on_from(turn, await self.lookup.find(turn.continues.run))
        if turn.session is not None:
            return await self._next_in(turn, turn.session)
        if not turn.history:
            return await self._begin(turn, _session_of(turn))
        last = await self._recognized(turn)
        return await self._go_on_from(turn, last) if last else await self._begin(turn, _session_of(turn))

    # --- words for calls that wait

    async def _answer_calls(self, turn: Turn) -> Place:
        """Brings results of the caller's functions, and a person's words, to the run that waits for them."""
        calls = {**{call: PersonsWord("approved", text) for call, text in turn.results.items()}, **turn.words}
        run = tree_of(next(reversed(calls)))
        progress = await self.answers.so_far(Place(run))
        told = {call for pause in progress.pauses for call in pause.held}
        given = {call: word for call, word in calls.items() if call in told}
        if not given:
            raise invalid(f"run {run} has asked for none of these calls: {', '.join(calls)}")
        # Whoever keeps the conversation itself sends the results of all turns: the last pause that they settle counts.
        pauses = [pause for pause in progress.pauses if given.keys() & pause.held.keys()]
        open_calls = [call for call in pauses[-1].held if call not in progress.decided]
        if missing := [call for call in open_calls if call in progress.held and call not in given]:
            raise invalid(f"run {run} waits for {', '.join(missing)} as well: answer all calls at once")
        for call, word in given.items():
            if (held := progress.held.get(call)) is not None:
                if not held.is_callers:
                    if call in turn.results:
                        raise invalid(
                            f"call {call} waits for a person, and a function's result is no word on it: answer it with"
                            " an mcp_approval_response"
                        )
                    _check_may_decide(turn)
                asks = held.request.name == ASK_USER and word.verdict == "approved"
                await self._decide(call, word, turn, answer=word.feedback if asks else None)
        return Place(run, pauses[-1].seq)

    async def _decide(self, call: str, word: PersonsWord, turn: Turn, answer: str | None = None) -> None:
        verdict = "corrected" if answer is not None else word.verdict
        arguments = {"answer": answer} if answer is not None else None
        ruling = said(verdict, turn.by, word.feedback, arguments)
        await self.decisions.decide(call, ruling, turn.traceparent)

    # --- sessions

    async def _next_in(self, turn: Turn, session: str) -> Place:
        async with answer_deadline():
            recorded, _ = await self.turns.read(turn.agent, session)
            last = await self._find(recorded.run) if recorded is not None else None
        if last is not None and (place := await self._with_last(turn, last)) is not None:
            return place
        return await self._begin(turn, session, goes_on=True, knows_history=last is not None)

    async def _with_last(self, turn: Turn, last: RunSummary) -> Place | None:
        """The place in the session's last run when the turn is about that; None when it begins a new one."""
        progress = await self.answers.so_far(Place(last.id))
        if progress.task is None:
            task = await self.history.task(last.tree, last.id)
            digest = task.request if task is not None else ""
        else:
            digest = progress.task.request
        if digest == turn.key.digest and (turn.is_retry or progress.end is None):
            return Place(last.id)
        if progress.end is not None:
            return self._repeated(turn, progress)
        if progress.task is None:
            return None  # about to start: the session says so
        return await self._steer(turn, progress)

    def _repeated(self, turn: Turn, progress: Progress) -> Place | None:
        """The place of a turn whose run has ended since: one that came before, or a word on a call that was decided
        elsewhere."""
        if not turn.is_retry:
            asked = progress.pauses[-1] if progress.pauses else None
            if asked and word_in(turn.text) and any(call in turn.last_answer for call in asked.held):
                return Place(progress.run, asked.seq)
            return None
        before = next((seq for seq, text in progress.messages if text == turn.text), None)
        if before is None and word_in(turn.text) is not None and progress.pauses:
            before = progress.pauses[-1].seq
        return Place(progress.run, before) if before is not None else None

    async def _steer(self, turn: Turn, progress: Progress) -> Place | None:
        """A word on what the run waits for, else a message to it."""
        word = word_in(turn.text)
        asked = {call: held for call, held in progress.held.items() if not held.is_callers}
        told = {call: held for call, held in asked.items() if call in turn.last_answer} or asked
        questions = [call for call, held in told.items() if held.request.name == ASK_USER]
        if questions:
            _check_may_decide(turn)
            for call in questions:
                await self._decide(call, PersonsWord("corrected"), turn, answer=turn.text)
            return Place(progress.run, progress.place_behind(set(questions)))
        if word is not None and (told or progress.pauses):
            if told:
                _check_may_decide(turn)
            for call in told:
                await self._decide(call, word, turn)
            return Place(progress.run, progress.place_behind(set(told)) if told else progress.pauses[-1].seq)
        try:
            await self.steering.tell(
                progress.run,
                turn.text,
                "next" if progress.held else "interrupt",
                f"turn:{turn.key.digest}",
                turn.user or "",
            )
        except Problem as problem:
            if problem.code != "run-ended":
                raise
            return None
        return Place(progress.run, progress.seq)

    async def _go_on_from(self, turn: Turn, last: RunSummary) -> Place:
        """Goes on from a run: in its session where it is the last one there, else in a session that branches off."""
        own, branch = last.session or _session_of(turn), f"{_session_of(turn)[:20]}-{last.id}"
        for session in (own, branch):
            recorded, _ = await self.turns.read(turn.agent, session)
            if recorded is not None and recorded.previous == last.id and turn.is_retry:
                task = await self.history.task(recorded.run, recorded.run)
                if task is not None and task.request == turn.key.digest:
                    return Place(recorded.run)
            if recorded is not None and recorded.run == last.id:
                return await self._next_in(turn, session)
        await self._branch(turn.agent, branch, last.id)
        return await self._next_in(turn, branch)

    async def _branch(self, agent: str, session: str, run: str) -> None:
        """Makes `run` the last one of the session. Whoever begins the same branch at the same moment means the same."""
        recorded, fence = await self.turns.read(agent, session)
        if recorded is None or recorded.run != run:
            turn = SessionTurn(run=run, at=self.clock.now())
            try:
                await self.turns.record(agent, session, turn, fence)
            except Fenced as error:
                raise Problem(409, "session-busy", "others go on from the same answer just now") from error

    async def _recognized(self, turn: Turn) -> RunSummary | None:
        """The run whose answer the caller was told last: its task and its output are the end of the history."""
        asked = next((said.text for said in reversed(turn.history) if said.role == "user"), None)
        if asked is None or not turn.last_answer:
            return None
        recorded, _ = await self.turns.read(turn.agent, _session_of(turn))
        named = [tree_of(call) for call in _CALL.findall(turn.last_answer)]
        runs = [*named, *([recorded.run] if recorded is not None else [])]
        candidates = [found for run in runs if (found := await self._find(run)) is not None]
        listed, _ = await self.lookup.index.list(RunFilter(agent=turn.agent), limit=_SEARCHED_RUNS)
        tasks = {shortened(said.text.strip()) for said in turn.history if said.role == "user"}
        candidates += [one for one in listed if one.task in tasks]
        known = {one.id: one for one in candidates if (one.agent, one.user) == (turn.agent, turn.user)}
        for one in list(known.values())[:_READ_RUNS]:
            progress = await self.answers.so_far(Place(one.id))
            if _was_told(progress, asked, turn.last_answer):
                return one
        return None

    async def _find(self, run: str) -> RunSummary | None:
        try:
            return await self.lookup.find(run)
        except Problem as problem:
            if problem.status != _NOT_FOUND:
                raise
            return None

    # --- new runs

    async def _begin(
        self, turn: Turn, session: str, *, goes_on: bool = False, knows_history: bool = False
    ) -> Place:
        if turn.is_retry and not goes_on and not turn.has_own_key:
            recorded, _ = await self.turns.read(turn.agent, session)
            if recorded is not None:
                task = await self.history.task(recorded.run, recorded.run)
                if task is not None and task.request == turn.key.digest:
                    return Place(recorded.run)
        arguments: dict[str, object] = {}
        if turn.instructions:
            arguments["instructions"] = turn.instructions
        if turn.history and not knows_history:
            arguments["conversation"] = [{"role": said.role, "text": said.text} for said in turn.history]
        wanted = checked_submission(
            Submission(
                agent=turn.agent,
                task=turn.text,
                additional_args=arguments,
                images=turn.images,
                files=turn.files,
                session=session,
                user=turn.user,
                reset=not goes_on,
            )
        )
        terms = CallerTerms(tools=turn.tools, output_schema=turn.output_schema, metadata=turn.metadata)
        async with answer_deadline():
            run = await self.submitter.submit(wanted, turn.key, turn.traceparent, terms=terms)
        return Place(run.id)


def _session_of(turn: Turn) -> str:
    """The session of a chat that names none: of all that begin with the same words."""
    begun = f"{turn.agent}\n{turn.user or ''}\n{turn.first_text}"
    return f"chat-{hashlib.sha256(begun.encode()).hexdigest()[:24]}"


def _was_told(progress: Progress, asked: str, answer: str) -> bool:
    """Whether the run was asked this last, and has given this answer or waits for what it names."""
    if any(call in answer for pause in progress.pauses for call in pause.held):
        return True
    said = [text for _, text in progress.messages] + (
        [progress.task.task] if progress.task is not None else []
    )
    if progress.end is None or progress.end.output is None:
        return False
    is_asked = any(_plain(text) == _plain(asked) for text in said) or word_in(asked) is not None
    return is_asked and _plain(answer_text(progress.end.output)) == _plain(answer)


def _plain(text: str) -> str:
    return " ".join(text.split())


def _check_may_decide(turn: Turn) -> None:
    if not turn.may_decide:
        raise Problem(
            403, "forbidden", "this key may not decide on calls: somebody with the role `approver` does"
        )

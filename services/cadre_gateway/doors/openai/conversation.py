"""Find or begin the run that answers a turn.

A request continues an earlier run only if it names that run: by a session, by an earlier response, or by the id of
a pending call in the answer that it repeats. Any other request begins a run with its own history. Nothing is
guessed from the text. Titles, tags and follow-up questions, which chat programs request behind the chat, are
answered at once without a run.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from dataclasses import dataclass

import msgspec

from cadre.adapters.nats.sessions import SessionTurn
from cadre.api.runs import RunSummary
from cadre.errors import Fenced
from cadre.protocol.topology import tree_of
from cadre_gateway.doors.following import Answers
from cadre_gateway.doors.messages import ARGUMENT, TOLD, MessageContent, ToldHistory
from cadre_gateway.doors.openai.kept_conversations import KeptConversations
from cadre_gateway.doors.openai.turn_request import Turn
from cadre_gateway.doors.progress import PendingAnswer, Place, Progress, answer_text
from cadre_gateway.doors.rulings import ASK_USER, PersonsWord, said, word_in
from cadre_gateway.doors.sender import RunService, known_run
from cadre_gateway.requests.body import Submission, checked_submission
from cadre_gateway.requests.problems import Problem, answer_deadline, invalid

_NOT_FOUND = 404
_CALL = re.compile(r"[A-Za-z0-9-]{1,64}(?:_\d{1,9}_\d{1,9}){1,64}")
_NAMED = re.compile(f"`({_CALL.pattern})`")
"""A call, as a question to a person names it."""
_GO_ON = "Go on with the conversation: it ends with the results of function calls."
"""The task if a turn contains only results of calls that another model has made."""
_RETRY_SECONDS = 3_600
"""Seconds for which a client that retries finds the run that it began."""
_BESIDE = frozenset({"instructions", ARGUMENT})
"""Arguments that are the chat's and not the agent's own."""

_USER = re.compile(r"^[ \t]*USER:(.*)", re.IGNORECASE | re.MULTILINE)
_TITLE_WORDS = 5

_EMPTY: dict[str, object] = {"tags": [], "follow_ups": [], "queries": [], "text": "", "prompt": ""}
"""Answers to requests of each kind, by the key of the JSON that they ask for."""


@dataclass(frozen=True)
class Conversations:
    """Finds or begins the runs of turns. Every method raises Problem, RetryableError."""

    answers: Answers
    runs: RunService
    kept: KeptConversations

    async def place_of(self, turn: Turn) -> Place:
        """Return the place at which the answer to the turn begins; the same turn, sent again, finds its earlier place.
        A caller that may not start the agent's runs may not enter any of its sessions either: 403."""
        turn.caller.starts_for(turn.agent, turn.user)
        if turn.results or turn.words:
            if (place := await self._answer_calls(turn)) is not None:
                return place
            turn = turn if turn.text else _as_asked(turn)
        if turn.has_own_key:
            known = await known_run(self.runs, turn.caller, turn.agent, turn.key)
            if known is not None:
                return known
        if turn.continues is not None:
            await self.runs.reach.check(turn.caller, "tree", turn.continues.run)
            await self.answers.check(turn.continues)
            return await self._go_on_from(turn, await self.runs.lookup.find(turn.continues.run))
        if turn.session is not None and turn.afresh:
            return await self._begin(turn, turn.session)
        if turn.session is not None:
            return await self._next_in(turn, turn.session)
        last = await self._named(turn)
        return await self._go_on_from(turn, last) if last else await self._begin(turn, None)

    # --- words for calls that wait

    async def _answer_calls(self, turn: Turn) -> Place | None:
        """Bring results of the caller's functions, and a person's words, to the run that waits for them; None where
        the turn is no answer to a run of this agent: another model made the calls, or the run waits no longer."""
        calls = {**{call: PersonsWord("approved", text) for call, text in turn.results.items()}, **turn.words}
        run = tree_of(next(reversed(calls)))
        # The caller has the calls and their results in its own conversation: another run can read them there.
        is_told = not turn.words and (turn.continues is not None or turn.results.keys() <= turn.history.calls)
        if is_told and not (_CALL.fullmatch(next(reversed(calls))) and await self._reaches(turn, run)):
            return None
        await self.runs.reach.check(turn.caller, "tree", run)
        progress = await self.answers.so_far(Place(run))
        if progress.task is not None and progress.task.agent != turn.agent:
            if is_told:
                return None  # a handoff: this agent reads what the other one was answered
            raise invalid(f"run {run} is one of agent {progress.task.agent!r}", field="model")
        told = {call for pause in progress.pauses for call in pause.held}
        given = {call: word for call, word in calls.items() if call in told}
        if not given:
            raise invalid(f"run {run} has asked for none of these calls: {', '.join(calls)}")
        if is_told and any(_is_too_late(call, progress) for call in given):
            return None
        return await self._give(turn, progress, given)

    async def _reaches(self, turn: Turn, run: str) -> bool:
        """Return whether there is such a run, and the caller reaches it."""
        return await self.runs.reach.has(turn.caller, "tree", run) and await self._find(run) is not None

    async def _give(self, turn: Turn, progress: Progress, given: dict[str, PersonsWord]) -> Place:
        """Answer calls of the run that are pending, and return the place behind the answers."""
        results = [call for call in given if call in progress.held and progress.held[call].is_callers]
        asked = [call for call, held in progress.held.items() if held.is_callers]
        if results and (missing := [call for call in asked if call not in given]):
            raise invalid(f"run {progress.run} waits for {', '.join(missing)} as well: answer all functions at once")
        pending = [call for call in given if call in progress.held]
        for call in pending:
            if not progress.held[call].is_callers:
                if call in turn.results:
                    raise invalid(
                        f"call {call} waits for a person, and a function's result is no word on it: answer it with an"
                        " mcp_approval_response"
                    )
                _check_may_decide(turn)
        # Words first and all at once, so that the run does not pause between two answers of one turn.
        pending.sort(key=lambda call: progress.held[call].is_callers)
        await asyncio.gather(*(self._decide(call, given[call], turn, progress.held[call]) for call in pending))
        # A client that keeps the conversation sends the results of all turns: the last pause that they settle counts.
        last = next(pause for pause in reversed(progress.pauses) if given.keys() & pause.held.keys())
        return await self.answers.place_behind(progress.run, given.keys() & last.held.keys())

    async def _decide(self, call: str, word: PersonsWord, turn: Turn, held: PendingAnswer) -> None:
        answer = None
        if not held.is_callers and held.request.name == ASK_USER and word.verdict == "approved":
            answer = {"answer": word.feedback}
        verdict = "corrected" if answer is not None else word.verdict
        ruling = said(verdict, turn.by, word.feedback, answer)
        await self.runs.decisions.decide(call, ruling, turn.traceparent, turn.caller.titles)

    # --- sessions

    async def _next_in(self, turn: Turn, session: str) -> Place:
        async with answer_deadline():
            recorded, _ = await self.runs.turns.read(turn.agent, session, turn.user)
            last = await self._find(recorded.run) if recorded is not None else None
        if last is None:
            return await self._begin(turn, session, goes_on=True)
        progress = await self.answers.so_far(Place(last.id))
        task = progress.task or await self.runs.history.task(last.tree, last.id)
        if task is not None and task.request == turn.key.digest and (turn.is_retry or progress.end is None):
            return Place(last.id)
        if turn.history and not turn.adds and (task is None or not turn.history.ends_with(task, progress)):
            # The caller has taken back what the session holds: its own history counts.
            return await self._begin(turn, session)
        if (place := await self._with_last(turn, progress)) is not None:
            return place
        return await self._begin(turn, session, goes_on=True, knows_history=not turn.adds)

    async def _with_last(self, turn: Turn, progress: Progress) -> Place | None:
        """Return the place in the session's last run when the turn is about that; None when it begins a new one."""
        if progress.end is not None:
            return self._repeated(turn, progress)
        if progress.task is None:
            return None  # about to start: the session says so
        return await self._steer(turn, progress)

    def _repeated(self, turn: Turn, progress: Progress) -> Place | None:
        """Return the place of a turn whose run has ended since: one that came before, or a word on a call that was
        decided elsewhere."""
        if not turn.is_retry:
            asked = progress.pauses[-1] if progress.pauses else None
            if asked and word_in(turn.text) and any(call in turn.history.last_answer for call in asked.held):
                return Place(progress.run, asked.seq)
            return None
        before = next((seq for seq, text in progress.messages if text == turn.text), None)
        if before is None and word_in(turn.text) is not None and progress.pauses:
            before = progress.pauses[-1].seq
        return Place(progress.run, before) if before is not None else None

    async def _steer(self, turn: Turn, progress: Progress) -> Place | None:
        """Return a word on what the run waits for, else a message to it; with both, results of functions from the
        history."""
        word = word_in(turn.text)
        asked = {call: held for call, held in progress.held.items() if not held.is_callers}
        told = {call: held for call, held in asked.items() if call in turn.history.last_answer} or asked
        given = {
            call: PersonsWord("approved", result)
            for call, result in turn.history.results.items()
            if call in progress.held and progress.held[call].is_callers
        }
        questions = [call for call, held in told.items() if held.request.name == ASK_USER]
        if questions:
            given |= {call: PersonsWord("approved", turn.text) for call in questions}
            return await self._give(turn, progress, given)
        if word is not None and told:
            return await self._give(turn, progress, given | dict.fromkeys(told, word))
        if word is not None and progress.pauses and not progress.held:
            return Place(progress.run, progress.pauses[-1].seq)
        place = await self._give(turn, progress, given) if given else Place(progress.run, progress.seq)
        try:
            await self.runs.steering.tell(
                progress.run,
                turn.text,
                "next" if progress.held else "interrupt",
                turn.key._replace(key=f"turn:{turn.key.digest}"),
                turn.user or "",
            )
        except Problem as problem:
            if problem.code != "run-ended":
                raise
            return None
        return place

    async def _go_on_from(self, turn: Turn, last: RunSummary) -> Place:
        """Go on from a run: in its session where it is the last one there, else in a session that branches off."""
        branch = f"after-{last.id}"
        if last.agent != turn.agent:
            history = await self._said_with(last.id)
            history.extend(turn.history)
            return await self._begin(msgspec.structs.replace(turn, history=history), branch)
        for session in (last.session, branch) if last.session is not None else (branch,):
            recorded, _ = await self.runs.turns.read(turn.agent, session, turn.user)
            if recorded is not None and recorded.previous == last.id and turn.is_retry:
                task = await self.runs.history.task(recorded.run, recorded.run)
                if task is not None and task.request == turn.key.digest:
                    return Place(recorded.run)
            if recorded is not None and recorded.run == last.id:
                return await self._next_in(turn, session)
        await self._branch(turn, branch, last.id)
        return await self._next_in(turn, branch)

    async def _said_with(self, run: str) -> ToldHistory:
        """Return what was said with another agent up to the end of its run, or to what that waits for."""
        progress = await self.answers.so_far(Place(run))
        task, end = progress.task, progress.end
        if task is None:
            return ToldHistory()
        history = await self._said_with(task.continues) if task.continues is not None else ToldHistory()
        for one in task.inputs.get(ARGUMENT, []):
            more = {name: value for name, value in one.items() if name not in ("role", "text", "images", "files")}
            shown = [task.images[number - 1] for number in one.get("images", ())]
            history.add(one["role"], MessageContent(one["text"], images=shown), **more)
        before = max((number for one in task.inputs.get(ARGUMENT, []) for number in one.get("images", ())), default=0)
        history.add("user", MessageContent(task.task, images=task.images[before:]))
        if end is not None and end.output is not None:
            history.add("assistant", MessageContent(answer_text(end.output)))
        asked = {call: held.request for call, held in progress.held.items() if held.is_callers}
        calls = [{"id": call, "name": one.name, "arguments": one.arguments} for call, one in asked.items()]
        history.add("assistant", MessageContent(), calls=calls)
        return history

    async def _branch(self, turn: Turn, session: str, run: str) -> None:
        """Make `run` the last one of the session. A caller that begins the same branch at the same moment means the
        same."""
        recorded, fence = await self.runs.turns.read(turn.agent, session, turn.user)
        if recorded is None or recorded.run != run:
            branched = SessionTurn(run=run, at=self.runs.clock.now())
            try:
                await self.runs.turns.record(turn.agent, session, turn.user, branched, fence)
            except Fenced as error:
                raise Problem(409, "session-busy", "others go on from the same answer just now") from error

    async def _named(self, turn: Turn) -> RunSummary | None:
        """Return the run that has asked about a call which the last answer of the history names: a run of this agent,
        for this person, that the caller reaches."""
        calls = _NAMED.findall(turn.history.last_answer)
        for run in dict.fromkeys(map(tree_of, calls)):
            if not await self.runs.reach.has(turn.caller, "tree", run):
                continue
            found = await self._find(run)
            if found is None or (found.agent, found.user or "") != (turn.agent, turn.user or ""):
                continue
            progress = await self.answers.so_far(Place(run))
            if any(call in pause.held for pause in progress.pauses for call in calls):
                return found
        return None

    async def _find(self, run: str) -> RunSummary | None:
        try:
            return await self.runs.lookup.find(run)
        except Problem as problem:
            if problem.status != _NOT_FOUND:
                raise
            return None

    # --- new runs

    async def _note(self, turn: Turn, fence: int) -> None:
        """Keep for a while which run the turn begins, for a client that tries again. Where the caller sends the very
        request twice at once, the first counts."""
        run = await self.runs.submitter.admission.keyed.run_of(turn.key, turn.agent)
        begun = SessionTurn(run=run, at=self.runs.clock.now())
        with contextlib.suppress(Fenced):
            await self.runs.turns.record(turn.agent, _request_of(turn), turn.user, begun, fence, seconds=_RETRY_SECONDS)

    async def _begin(
        self, turn: Turn, session: str | None, *, goes_on: bool = False, knows_history: bool = False
    ) -> Place:
        if not goes_on and not turn.has_own_key:
            named = session or _request_of(turn)
            recorded, fence = await self.runs.turns.read(turn.agent, named, turn.user)
            if recorded is not None and turn.is_retry:
                task = await self.runs.history.task(recorded.run, recorded.run)
                if task is not None and task.request == turn.key.digest:
                    return Place(recorded.run)
            if session is None:
                await self._note(turn, fence)
        arguments: dict[str, object] = {}
        if turn.instructions:
            arguments["instructions"] = turn.instructions
        before = ToldHistory() if knows_history else turn.history
        if before:
            arguments[ARGUMENT] = before.said
        wanted = checked_submission(
            Submission(
                agent=turn.agent,
                task=turn.text,
                inputs=arguments,
                images=[*before.images, *turn.images],
                files=before.files | turn.files,
                session=session,
                user=turn.user,
                reset=session is not None and not goes_on,
            )
        )
        if turn.conversation:
            run_id = await self.runs.submitter.admission.keyed.run_of(turn.key, turn.agent)
            await self.kept.note(turn, run_id)
        metadata = turn.metadata | {TOLD: turn.mark}
        terms = msgspec.structs.replace(turn.terms, output_schema=turn.output_schema, metadata=metadata)
        async with answer_deadline():
            run = await self.runs.submitter.submit(
                turn.caller,
                wanted,
                turn.key,
                turn.traceparent,
                terms=terms,
                beside=_BESIDE,
                standing=before.standing(turn.text, turn.instructions),
            )
        return Place(run.id)


def _as_asked(turn: Turn) -> Turn:
    """Return the turn of a caller who says nothing but results, with a task for the run that reads them."""
    for one in turn.history.said:
        one.pop("after_task", None)
    return msgspec.structs.replace(turn, text=_GO_ON)


def _is_too_late(call: str, progress: Progress) -> bool:
    """Return whether the run no longer waits for the result of the call, and never had it."""
    decided = progress.decided.get(call)
    return call not in progress.held and (decided is None or decided.verdict == "expired")


def _request_of(turn: Turn) -> str:
    """Return the name under which the run of a turn without a session is found when its client tries again: of this
    request of this caller alone."""
    return f"request-{turn.key.digest[:32]}"


def _check_may_decide(turn: Turn) -> None:
    if not turn.caller.may("decide"):
        raise Problem(403, "forbidden", "this key may not decide on calls: somebody with the role `approver` does")


def answer_of(text: str) -> str | None:
    """Return the answer to such a request, which Open WebUI begins with `### Task:`; None for what a person has
    said."""
    # Its own words ask for the form; the chat below them may say anything.
    asked, begin, rest = text.partition("<chat_history>")
    chat, end, _ = rest.partition("</chat_history>")
    if not text.lstrip().startswith("### Task:") or not begin or not end:
        return None
    if '"title"' in asked:
        return json.dumps({"title": _title(chat)}, ensure_ascii=False)
    key = next((key for key in _EMPTY if f'"{key}"' in asked), None)
    return json.dumps({key: _EMPTY[key]}) if key is not None else None


def _title(chat: str) -> str:
    said = next((one[1] for one in _USER.finditer(chat) if one[1].strip()), chat)
    words = said.split()
    return " ".join(words[:_TITLE_WORDS]).rstrip(".,:;!?") or "Chat"

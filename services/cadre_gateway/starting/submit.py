"""Starts a root run: turns a request into a Task in its agent's inbox."""

from dataclasses import dataclass

from cadre.adapters.nats.reading.history import History
from cadre.adapters.nats.sessions import NatsSessions, SessionTurn
from cadre.api.runs import RunSummary
from cadre.engine.fold import fold
from cadre.errors import Fenced
from cadre.ports import Blobs, Clock, Journal
from cadre.protocol.files import decode_data_url, is_blob_ref
from cadre.protocol.messages import CallerTerms, Origin, Task
from cadre.protocol.policy import Standing
from cadre.protocol.topology import task_id, tree_of
from cadre.spec.answer_schema import misfits
from cadre.views.run_summary import summary_of_task
from cadre_gateway.access.principal import Principal
from cadre_gateway.reading.directory import LiveContracts
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.requests.body import Submission, after
from cadre_gateway.requests.idempotency import IdempotencyKey
from cadre_gateway.requests.problems import Problem, invalid
from cadre_gateway.requests.trace_link import trace_of
from cadre_gateway.starting.admission import Admission
from cadre_gateway.starting.workspaces import FileCarrier, Workspaces, WorkspaceSource

_MAX_TRIES = 5

_START_SECONDS = 10.0
"""Seconds that a recorded turn may lack its Task: its gateway is about to publish it."""


@dataclass(frozen=True)
class Sessions:
    """Decides which run a session's next one goes on from."""

    turns: NatsSessions
    lookup: RunLookup
    journal: Journal
    history: History
    clock: Clock

    async def take_turn(self, agent: str, session: str, user: str | None, run: str, reset: bool) -> str | None:
        """Make `run` the last one of the person's session; returns the run whose memory it goes on from.

        Raises a 409 problem while the last one is still going (unless `reset`), RetryableError.
        """
        for _ in range(_MAX_TRIES):
            turn, fence = await self.turns.read(agent, session, user)
            if turn is not None and turn.run == run:
                last = turn.previous  # the same request, sent again
            else:
                last = await self._last_run(turn, session, reset) if turn else None
                try:
                    taken = SessionTurn(run=run, previous=last, at=self.clock.now())
                    await self.turns.record(agent, session, user, taken, fence)
                except Fenced:
                    continue
            return None if reset else last
        raise _busy(session, "others keep starting runs in it")

    async def files_of(self, run: str | None) -> WorkspaceSource | None:
        """Return the workspace that goes on with the memory of `run`; None if it does not exist (any more). Raises
        RetryableError."""
        if run is None or await self.lookup.is_erased(run):
            return None
        return WorkspaceSource(run)

    async def _last_run(self, turn: SessionTurn, session: str, reset: bool) -> str | None:
        """Return the last run of the session that was ever started. A turn without one counts as never taken, and after
        one that was erased the session starts over."""
        for run, at in ((turn.run, turn.at), (turn.previous, 0.0)):
            if run is None:
                continue
            tree = tree_of(run)
            if await self.lookup.is_erased(tree):
                return None
            stored = await self.journal.read(tree, run)
            if stored:
                ended = fold((one.entry for one in stored), run, tree).result is not None
                if not ended and not reset:
                    raise _busy(session, f"its last run {run} is still going: wait for it or cancel it")
                return run
            starts = self.clock.now() - at < _START_SECONDS
            if not reset and (starts or await self.history.task(tree, run) is not None):
                raise _busy(session, f"its last run {run} is about to start: wait for it or cancel it")
        return None


def _busy(session: str, why: str) -> Problem:
    return Problem(
        409,
        "session-busy",
        f"session {session!r}: {why}, or start afresh (reset=true; `cadre run --reset`)",
    )


@dataclass(frozen=True)
class Submitter:
    """Starts root runs."""

    admission: Admission
    sessions: Sessions
    workspaces: Workspaces
    carrier: FileCarrier
    blobs: Blobs
    clock: Clock
    contracts: LiveContracts

    async def submit(  # noqa: PLR0913 - what a start is made of
        self,
        caller: Principal,
        wanted: Submission,
        key: IdempotencyKey | None,
        traceparent: str | None,
        *,
        needs_agent: bool = True,
        terms: CallerTerms | None = None,
        beside: frozenset[str] = frozenset(),
        standing: Standing | None = None,
    ) -> RunSummary:
        """Publish the Task of a new root run with the caller's rights; a repeated `key` finds the run that it started
        before.

        Unless it `needs_agent`, the run waits in the inbox for an agent that is not there. The inputs named in
        `beside` are checked against the agent's `input_schema` only if the schema names them. `standing` says which
        words are people's where not all are. Raise Problem, RetryableError.
        """
        run, user, known = await self.admission.admit(caller, wanted.agent, wanted.user, key, needs_agent=needs_agent)
        if known is not None:
            return known
        if needs_agent:
            await self._check_input(wanted, beside)
        images = [await self._image(number, ref) for number, ref in enumerate(wanted.images)]
        await self.workspaces.put(run, wanted.files)
        continues = None
        if wanted.session:
            continues = await self.sessions.take_turn(wanted.agent, wanted.session, user, run, wanted.reset)
            await self.carrier.carry(await self.sessions.files_of(continues), run)
        has_files = bool(wanted.files) or (continues is not None and await self.carrier.has_files(run))
        now = self.clock.now()
        task = Task(
            id=task_id(run),
            tree=run,
            run=run,
            at=now,
            agent=wanted.agent,
            task=wanted.task,
            inputs=wanted.inputs,
            images=images,
            has_files=has_files,
            max_steps=wanted.max_steps,
            session=wanted.session,
            continues=continues,
            deadline=after("deadline", wanted.deadline, now),
            budget=wanted.budget.as_budget() if wanted.budget is not None else None,
            origin=_origin(wanted, user),
            labels=wanted.labels,
            trace=trace_of(traceparent),
            standing=standing,
            request=key.digest if key is not None else "",
            terms=terms or CallerTerms(output_schema=wanted.output_schema),
        )
        await self.admission.begin(task, key)
        return summary_of_task(task)

    async def _check_input(self, wanted: Submission, beside: frozenset[str]) -> None:
        """Raise a 422 problem when the agent wants other `inputs`."""
        spec = await self.contracts.of_agent(self.admission.registry.reachable(), wanted.agent)
        schema = spec.input_schema if spec is not None else None
        if schema is None:
            return
        beside -= set(schema.get("properties", {}))
        own = {name: value for name, value in wanted.inputs.items() if name not in beside}
        if wrong := misfits(schema, own, "inputs"):
            raise invalid(f"agent {wanted.agent} does not take this: {'; '.join(wrong)}")

    async def _image(self, number: int, ref: str) -> str:
        if ref.startswith("https:") or is_blob_ref(ref):
            return ref
        try:
            content = decode_data_url(ref)
        except ValueError as error:
            raise invalid(f"images[{number}]: not base64: {error}") from error
        if content is None or not content.media_type.startswith("image/"):
            raise invalid(f"images[{number}]: send a `data:image/…;base64,…` URL, an https: URL or a `blob:<sha256>`")
        return await self.blobs.put(content.data)


def _origin(wanted: Submission, user: str | None) -> Origin | None:
    """Return the person and session that the run works for; None without either."""
    if wanted.session:
        return Origin(user=user, session=wanted.session, root=wanted.agent)
    return Origin(user=user) if user else None

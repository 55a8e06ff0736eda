"""Starts a root run: turns a request into a Task in its agent's inbox."""

from dataclasses import dataclass

from cadre.api.runs import RunSummary
from cadre.ports import Blobs, Clock
from cadre.protocol.files import decode_data_url, is_blob_ref
from cadre.protocol.messages import CallerTerms, Origin, Task
from cadre.protocol.topology import task_id
from cadre.spec.answer_schema import misfits
from cadre.views.run_summary import summary_of_task
from cadre_gateway.access.principal import Principal
from cadre_gateway.reading.contracts import LiveContracts
from cadre_gateway.requests.body import Submission, after
from cadre_gateway.requests.idempotency import IdempotencyKey
from cadre_gateway.requests.problems import invalid
from cadre_gateway.requests.trace_link import trace_of
from cadre_gateway.starting.admission import Admission
from cadre_gateway.starting.sessions import Sessions
from cadre_gateway.starting.workspaces import FileCarrier, Workspaces


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
    ) -> RunSummary:
        """Publish the Task of a new root run with the caller's rights; a repeated `key` finds the run that it started
        before.

        Unless it `needs_agent`, the run waits in the inbox for an agent that is not there. The inputs named in
        `beside` are checked against the agent's `input_schema` only if the schema names them. Raise Problem,
        RetryableError.
        """
        run, user, known = await self.admission.admit(
            caller, wanted.agent, wanted.user, key, needs_agent=needs_agent
        )
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
            request=key.digest if key is not None else "",
            terms=terms or CallerTerms(output_schema=wanted.output_schema),
        )
        await self.admission.begin(task, key)
        return summary_of_task(task)

    async def _check_input(self, wanted: Submission, beside: frozenset[str]) -> None:
        """Raises a 422 problem when the agent wants other `inputs`."""
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
            raise invalid(
                f"images[{number}]: send a `data:image/…;base64,…` URL, an https: URL or a `blob:<sha256>`"
            )
        return await self.blobs.put(content.data)


def _origin(wanted: Submission, user: str | None) -> Origin | None:
    """Return for whom the run works; None for no person and in no session."""
    if wanted.session:
        return Origin(user=user, session=wanted.session, root=wanted.agent)
    return Origin(user=user) if user else None

"""What an agent sent to its model in a step, rendered once more from the run's journal."""

import asyncio
from collections.abc import Iterable

from cadre.adapters.models.request_body import as_seen, chat_body, limits_of, sent_body
from cadre.api.runs import ModelCallPlace, SentRequest
from cadre.engine.model_choice import model_at
from cadre.engine.model_request import ModelRequest
from cadre.errors import BlobMissing, PromptError
from cadre.journal.entry import Entry
from cadre.journal.events import ModelAnswered, ModelCalled, RunAccepted
from cadre.ports import Blobs, Stored
from cadre.prompting.prompts import Prompts
from cadre.runtime.pinned_prompts import read_prompts
from cadre.spec.model import ModelSpec
from cadre.telemetry.tracing.projection import ModelInput
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.requests.problems import Problem, note_progress


async def sent_request(
    lookup: RunLookup, blobs: Blobs, run: str, step: int, purpose: str | None, attempt: int | None
) -> SentRequest:
    """The model call of the step with that purpose and attempt, the last one of those that fit.

    Raises 404 problems: no such run, no such call, prompts that are gone. Raises BusUnavailable.
    """
    tree = (await lookup.find(run)).tree
    search: _Search | None = None
    async for page in lookup.history.lean_pages(tree, run=run):
        note_progress()
        if search is None:
            search = _Search(ModelInput(tree, run, await _prompts_of(page, blobs)), step, purpose, attempt)
        if await asyncio.to_thread(search.take, page):
            break
    if search is None or search.found is None:
        wanted = " ".join(str(one) for one in (purpose, attempt) if one is not None)
        raise Problem(
            404,
            "unknown-model-call",
            f"run {run} has asked its model nothing{wanted and f' for {wanted}'} in step {step}:"
            " GET /v1/runs/{run}/events tells its model calls (model.called)",
        )
    return search.answer(run)


async def _prompts_of(page: Iterable[Stored], blobs: Blobs) -> Prompts | None:
    """Those that the run keeps; None for one that keeps none."""
    events = (event for one in page for event in one.entry.events)
    ref = next((event.prompts for event in events if isinstance(event, RunAccepted)), "")
    try:
        return await read_prompts(ref, blobs) if ref else None
    except (BlobMissing, PromptError) as error:
        raise _unrenderable(str(error)) from error


def _unrenderable(why: str) -> Problem:
    return Problem(404, "prompts-gone", f"what the model read cannot be rendered any more: {why}")


class _Search:
    """Follows a journal until the step is over; keeps the last call that fits, as it began."""

    def __init__(self, past: ModelInput, step: int, purpose: str | None, attempt: int | None) -> None:
        self._past = past
        self._step, self._purpose, self._attempt = step, purpose, attempt
        self._calls: list[ModelCallPlace] = []
        self._context: int | None = None
        self._model = self._endpoint = ""
        self.found: tuple[ModelCalled, float, ModelRequest, ModelSpec] | None = None

    def take(self, page: Iterable[Stored]) -> bool:
        """Whether nothing further of the step can come."""
        return any(self._take(one.entry) for one in page)

    def _take(self, entry: Entry) -> bool:
        self._past.enter(entry)
        called: ModelCalled | None = None
        for event in entry.events:
            self._past.apply(event, entry)
            match event:
                case ModelAnswered():
                    # An endpoint tells with its answers what it is called and how much it takes.
                    self._model = event.model or self._model
                    self._context = event.context or self._context
                    self._endpoint = event.endpoint or self._endpoint
                case ModelCalled():
                    called = event
                case _:
                    pass
        if called is not None and called.step <= self._step:
            self._note(called, entry.at)
        return called is not None and called.step > self._step

    def _note(self, called: ModelCalled, at: float) -> None:
        # Rendered call by call, as the agent does.
        request = self._past.request(called.purpose)
        if called.step != self._step:
            return
        place = ModelCallPlace(called.purpose, called.attempt)
        self._calls.append(place)
        if self._purpose not in (None, place.purpose) or self._attempt not in (None, place.attempt):
            return
        run = self._past.run
        if request is None or run is None or run.spec is None:
            raise _unrenderable("the journal does not say with which prompts the run began")
        self.found = (called, at, request, model_at(run.spec.model, called.fallback))

    def answer(self, run: str) -> SentRequest:
        """The request as it was posted."""
        assert self.found is not None
        called, at, request, spec = self.found
        name = spec.name or called.model or self._model
        learned = request.learned.get(self._endpoint)
        limits = limits_of(spec, spec.url, name, learned, self._context)
        # The endpoint of an agent whose file names none is known to the journal alone.
        limits.id = limits.id if spec.url else self._endpoint
        body = chat_body(spec, as_seen(request, spec), name, limits)
        return SentRequest(
            id=run,
            step=called.step,
            purpose=called.purpose,
            attempt=called.attempt,
            at=at,
            api=spec.api,
            body=sent_body(spec, body),
            calls=self._calls,
        )

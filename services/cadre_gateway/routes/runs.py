"""The HTTP routes of runs: start, list, show, follow, cancel."""

from typing import Annotated, Literal

from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.responses import Response
from msgspec import UNSET

from cadre.adapters.nats.registry import NatsRegistry
from cadre.api.runs import Accepted, RunDetail, RunOrder, RunResult, State
from cadre.ports import Clock
from cadre.telemetry.tracing.ids import trace_id
from cadre_gateway.access.principal import caller_of
from cadre_gateway.access.reach import CallerReach
from cadre_gateway.index.run_filter import RunFilter, TreeReach
from cadre_gateway.reading.detail import DetailPage, LiveNames, run_detail
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.requests import body, problems
from cadre_gateway.requests.idempotency import IdempotencyHeader, idempotency_key, owned_key
from cadre_gateway.requests.parameters import MAX_SEQ, Moment, bounds, resume_position, wait_seconds
from cadre_gateway.requests.problems import answer_deadline
from cadre_gateway.requests.trace_link import trace_headers
from cadre_gateway.routes import openapi
from cadre_gateway.routes.openapi import accepted, json_answer, run_headers
from cadre_gateway.starting.submit import Submitter
from cadre_gateway.steering.run_end import RunEnd
from cadre_gateway.streaming.event_stream import EventStream, EventStreams, RowStreams, ShownEntry

_SUBMIT = openapi.operation(
    body.Submission,
    {
        "202": ("Accepted", Accepted),
        "200": (
            "Ended within the time to wait; with `stream`, its events as `GET /v1/runs/{id}/events` has them",
            RunResult,
        ),
    },
    streams="text/event-stream",
)
_CANCEL = openapi.operation(
    body.CancelBody,
    {"202": ("Asked to end", openapi.CancelAnswer), "200": ("Had ended already", openapi.CancelAnswer)},
    required=False,
)
_EVENTS = openapi.streams(
    "Event stream; the data of an event is a `Shown`, of `delta` a `Delta`, of `rows` a `RowsChanged`",
    "text/event-stream",
)

_MAX_TEXT_CHARS, _MAX_LABELS = 1000, 16

LastEventId = Annotated[str | None, Header(alias="Last-Event-ID")]


def router(  # noqa: PLR0913 - what the routes of runs share
    reach: CallerReach,
    submitter: Submitter,
    lookup: RunLookup,
    run_end: RunEnd,
    streams: EventStreams,
    registry: NatsRegistry,
    clock: Clock,
    trace_url: str = "",
) -> APIRouter:
    """Return the routes of runs; `trace_url` is where people look at traces, with `{trace_id}` in it."""
    routes = APIRouter(prefix="/v1/runs", tags=["runs"])
    rows = RowStreams(streams)

    @routes.post("", summary="Start a run", status_code=202, openapi_extra=_SUBMIT)
    async def post_run(
        request: Request,
        key_header: IdempotencyHeader = None,
        prefer: Annotated[str | None, Header()] = None,
        traceparent: Annotated[str | None, Header()] = None,
    ) -> Response:
        """202 with the run's id, or with `Prefer: wait=SECONDS` 200 with its result when it ends in time, or
        with `stream: true` its events."""
        data = await body.read(request)
        caller = caller_of(request)
        wanted = body.submission(data)
        key = idempotency_key(caller.owner, key_header, "start", data)
        async with answer_deadline():
            run = await submitter.submit(caller, wanted, key, traceparent)
        seconds = wait_seconds(prefer)
        answer: Response
        if wanted.stream:
            answer = EventStream(streams.frames(run.id, 0))
        elif seconds:
            full = wanted.return_full_result
            result = await run_end.result(run.id, seconds, full=full, is_new=key is None)
            if result is None:
                async with answer_deadline():
                    return accepted(await lookup.find(run.id))  # it may wait for a person by now
            answer = json_answer(result)
        else:
            return accepted(run)
        answer.headers.update(run_headers(run.id))
        return answer

    @routes.get("", summary="List runs, newest first", responses=openapi.answers(openapi.RunList))
    async def get_runs(  # noqa: PLR0913 - one for each parameter of the query
        request: Request,
        agent: str | None = None,
        member: str | None = None,
        state: Annotated[list[State] | None, Query(description="May be given again: any of them")] = None,
        waiting_for: str | None = None,
        session: str | None = None,
        user: str | None = None,
        parent: str | None = None,
        since: Moment = None,
        until: Moment = None,
        min_cost: Annotated[float | None, Query(ge=0, allow_inf_nan=False)] = None,
        error: str | None = None,
        label: Annotated[list[str] | None, Query(max_length=_MAX_LABELS)] = None,
        text: Annotated[str | None, Query(max_length=_MAX_TEXT_CHARS)] = None,
        sort: RunOrder = "started",
        count: bool = False,
        limit: Annotated[int, Query(ge=1, le=1000)] = 50,
        before: str | None = None,
    ) -> Response:
        """`parent` lists the runs directly below one; `member` those in which this agent has a run, as the root or
        below it; `waiting_for` is `approval`, `model`, `time` or `signal NAME`;
        `since` and `until` are about when a run was asked for; `error` is the code, or the type, of
        the error that it failed with; `label` is `NAME=VALUE`, or `NAME` with any value, and may be given again; `text`
        are words of the task or the answer, the last of which may be the beginning of one. `count` adds how many there
        are in all."""
        caller, (begin, end) = caller_of(request), bounds(since, until, clock.now())
        wanted = RunFilter(
            agent=agent,
            member=member,
            states=frozenset(state) if state else None,
            waiting_for=_awaited(waiting_for) if waiting_for is not None else None,
            session=session,
            user=user,
            parent=parent,
            since=begin,
            until=end,
            min_cost=min_cost,
            error=error,
            labels=tuple(_label(one) for one in label or ()),
            text=text,
            reach=caller.reach if parent is None else TreeReach(),
        )
        async with answer_deadline():
            if parent is not None:
                await reach.check(caller, "run", parent)
            try:
                found, more = await lookup.index.list(wanted, order=sort, limit=limit, before=before)
            except KeyError:
                raise problems.invalid(
                    f"before: {before!r} is not the `next` of a page with sort={sort}; start again without it"
                ) from None
            total = await lookup.index.count(wanted) if count else UNSET
        return json_answer(openapi.RunList(runs=found, next=more, total=total))

    @routes.get("/{run}", summary="One run with all runs below it", responses=openapi.answers(RunDetail))
    async def get_run(
        run: str,
        full: bool = False,
        limit: Annotated[int | None, Query(ge=1, le=1000)] = None,
        after: Annotated[int, Query(ge=0, le=MAX_SEQ)] = 0,
    ) -> Response:
        """`full=true` adds each run's memory. With `limit` each run has so many of the runs directly below it and of
        its steps, the run itself those behind the first `after`, and `next` is the `after` of the next page."""
        page = DetailPage(limit, after) if limit is not None else None
        if after and page is None:
            raise problems.invalid("after: send it with limit")
        async with answer_deadline():
            live = LiveNames(registry.presences(), registry.rollouts())
            return json_answer(await run_detail(lookup, run, full, live, page))

    @routes.get("/{run}/events", summary="A run's events as Server-Sent Events", responses=_EVENTS)
    async def get_events(
        run: str,
        after: Annotated[int | None, Query(ge=0, le=MAX_SEQ)] = None,
        last_event_id: LastEventId = None,
        view: Literal["events", "rows"] = "events",
    ) -> Response:
        """History first, then live; resumes behind `Last-Event-ID` or `after`; ends with the event `end`. With
        `view=rows` each entry's changes to the shown rows of the runs, in place of its events. The header
        `Cadre-Trace-Url` is the address of the run's trace, if `CADRE_TRACE_URL` is set."""
        try:
            begin = resume_position(last_event_id, after)
        except ValueError as error:
            raise problems.invalid(str(error)) from error
        async with answer_deadline():
            tree = (await lookup.find(run)).tree
        answer = EventStream((rows if view == "rows" else streams).frames(run, begin))
        if trace_url:
            answer.headers["Cadre-Trace-Url"] = trace_url.replace("{trace_id}", trace_id(tree))
        return answer

    @routes.get(
        "/{run}/entries/{n}",
        summary="One entry of a run's journal, whole",
        responses=openapi.answers(ShownEntry),
    )
    async def get_entry(run: str, n: Annotated[int, Path(ge=1, le=MAX_SEQ)]) -> Response:
        """Return what the texts of rows are cut from: `first` and `entry` of a row are the `n` of entries."""
        async with answer_deadline():
            return json_answer(ShownEntry.of(*await lookup.entry(run, n)))

    @routes.post("/{run}/cancel", summary="End a run", status_code=202, openapi_extra=_CANCEL)
    async def post_cancel(run: str, request: Request, key_header: IdempotencyHeader = None) -> Response:
        """202 when the run was asked to end, 200 with its state when it had ended already. It makes up for what it did
        first, unless the body says `now`; to ask again changes nothing."""
        data = await body.read(request)
        asked = body.parse(data, body.CancelBody) if data.strip() else body.CancelBody()
        async with answer_deadline():
            key = owned_key(caller_of(request).owner, key_header)
            found = await run_end.cancel(run, asked.reason, now=asked.now, key=key)
        answer = json_answer(openapi.CancelAnswer(found.id, found.state), 200 if found.finished else 202)
        answer.headers.update(trace_headers(run))
        return answer

    return routes


def _awaited(text: str) -> str:
    if text not in ("approval", "model", "time") and not text.startswith("signal "):
        raise problems.invalid(
            f"query.waiting_for: {text!r}: write approval, model, time or signal NAME;"
            " the run itself names any other reason"
        )
    return text


def _label(text: str) -> tuple[str, str | None]:
    name, mark, value = text.partition("=")
    if not name:
        raise problems.invalid(f"query.label: {text!r}: write NAME=VALUE, or NAME for any value")
    return name, value if mark else None

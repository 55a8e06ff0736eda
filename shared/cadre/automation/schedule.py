"""A schedule as people write it: whose run it starts, when, and what happens when runs overlap or ticks were missed;
and the templates over what comes with a tick or an event."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec

from cadre.errors import SpecError
from cadre.spec.durations import Length, checked_seconds
from cadre.spec.expressions import environment
from cadre.spec.names import check_name

Overlap = Literal["skip", "queue", "allow", "cancel"]
"""The behavior of a tick while the schedule's last run goes on."""

Missed = Literal["skip", "one", "all"]
"""The missed ticks that a schedule makes up for."""

LEAST_INTERVAL_SECONDS = 1.0

_SET_BY_THE_SCHEDULE = ("agent", "task", "stream", "return_full_result")
"""Keys of a request for a run that a schedule or trigger sets itself, or that say how a request is answered."""


class ScheduleSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A checked schedule. With neither `every` nor `cron` it has one tick, at `start`. Raises SpecError."""

    name: str
    agent: str
    task: str
    """Template of the task; it may use `tick` (a datetime in the time zone), `count` (of ticks, from 1), `schedule`."""
    every: Length | None = None
    """Seconds between ticks, or `10m`, `2h`, `1d`; counted from `start`, else from when the schedule was made."""
    cron: str | None = None
    """Five fields, or six with seconds first."""
    time_zone: str = "UTC"
    """IANA name; `cron` and times without an offset are of this zone."""
    start: datetime | None = None
    """No tick is before it."""
    end: datetime | None = None
    """No tick is after it."""
    count: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """No tick comes after so many."""
    overlap: Overlap = "skip"
    missed: Missed = "one"
    window: Length = "1d"
    """A tick that was missed by more than this is not made up for."""
    jitter: Length = 0
    """Each tick comes later by a length of time between nothing and this, which follows from name and tick."""
    paused: bool = False
    """True if the schedule is made in a pause."""
    options: dict[str, Any] = {}
    """Other keys of the request for a run, as in `POST /v1/runs`: `max_steps`, `deadline`, `budget`, `user`, …"""

    def __post_init__(self) -> None:
        check_name("schedule", self.name, "name")
        check_name("agent", self.agent, "agent")
        check_template("task", self.task)
        if self.every is not None and self.cron is not None:
            raise SpecError("write one of the two", key="every, cron")
        if self.every is not None:
            checked_seconds("every", self.every, LEAST_INTERVAL_SECONDS)
        elif self.cron is not None:
            _check_cron(self.cron)
        elif self.start is None:
            raise SpecError("write when its one tick is, or every or cron for several", key="start")
        zone_of(self.time_zone)
        checked_seconds("window", self.window)
        jitter = checked_seconds("jitter", self.jitter)
        if self.interval is not None and jitter >= self.interval:
            raise SpecError("must be shorter than every", key="jitter")
        if self.start is not None and self.end is not None and self.unix(self.end) < self.unix(self.start):
            raise SpecError("is before start", key="end")
        check_options(self.options)

    @property
    def start_options(self) -> dict[str, Any]:
        """Return the options of its runs, which have its name as the label `schedule`."""
        return labelled(self.options, "schedule", self.name)

    @property
    def interval(self) -> float | None:
        """Return the seconds between ticks; None for a cron expression or a single tick."""
        return None if self.every is None else checked_seconds("every", self.every)

    @property
    def is_one_time(self) -> bool:
        """Return whether it has a single tick."""
        return self.every is None and self.cron is None

    def unix(self, moment: datetime) -> float:
        """Unix seconds of a time of this schedule; one without an offset is of its time zone."""
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone_of(self.time_zone))
        return moment.timestamp()

    def local(self, tick: float) -> datetime:
        """Return a tick as a time in the schedule's time zone."""
        return datetime.fromtimestamp(tick, UTC).astimezone(zone_of(self.time_zone))


def check_options(options: Mapping[str, Any]) -> None:
    """Raise SpecError for options that the schedule or trigger sets itself."""
    if taken := [key for key in _SET_BY_THE_SCHEDULE if key in options]:
        raise SpecError(f"{', '.join(taken)}: is no option here", key="options")


def labelled(options: dict[str, Any], label: str, name: str) -> dict[str, Any]:
    """Return the options of a run with one more label; labels that are none are left to the check of the request."""
    labels = options.get("labels", {})
    return {**options, "labels": {**labels, label: name}} if isinstance(labels, dict) else options


def zone_of(name: str) -> Any:
    """Return the time zone with this IANA name, as a tzinfo. Raises SpecError."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise SpecError(
            f"{name!r} is not known here: write an IANA name such as Europe/Berlin"
            " (a machine without a time zone database needs `pip install tzdata`)",
            key="time_zone",
        ) from error


def _check_cron(expression: str) -> None:
    from cronsim import CronSim, CronSimError

    try:
        next(CronSim(expression, datetime(2000, 1, 1, tzinfo=UTC)))
    except (CronSimError, StopIteration) as error:
        raise SpecError(
            f"{expression!r}: {error or 'no such day ever comes'}; write five fields (minute hour day month"
            " weekday), or six with seconds first",
            key="cron",
        ) from error


MAX_TEXT_CHARS = 200_000
"""A rendered text may be no longer: it is stored and becomes a run's task."""


def check_template(key: str, text: str) -> None:
    """Check the syntax of a template. Raises SpecError, which names `key`."""
    from jinja2 import TemplateSyntaxError

    if not text.strip():
        raise SpecError("is empty", key=key)
    try:
        environment().parse(text)
    except TemplateSyntaxError as error:
        raise SpecError(f"line {error.lineno}: {error.message}", key=key) from error


def render(key: str, text: str, values: Mapping[str, Any]) -> str:
    """Return the template with the values filled in. Raises SpecError, which names `key`, when that fails or says
    nothing."""
    check_template(key, text)
    try:
        rendered: str = _compiled(text).render(dict(values))
        rendered.encode()  # half a surrogate pair cannot be stored
    except Exception as error:
        # A template runs over untrusted input: each way in which it fails is reported, and none ends the process.
        raise SpecError(str(error), key=key) from error
    if not rendered.strip():
        raise SpecError("the template says nothing with these values", key=key)
    if len(rendered) > MAX_TEXT_CHARS:
        raise SpecError(f"the text has over {MAX_TEXT_CHARS:,} characters", key=key)
    return rendered


def literal_text(text: str, own: Collection[str]) -> str | None:
    """Return what a template says with any values; None if it says all of it itself, or by the names in `own`."""
    from jinja2 import meta, nodes

    parsed = environment().parse(text)
    if meta.find_undeclared_variables(parsed) <= set(own):
        return None
    # Between two pieces a value stands: no word goes across it.
    return "\n".join(piece.data for piece in parsed.find_all(nodes.TemplateData))


@lru_cache(maxsize=256)
def _compiled(text: str) -> Any:
    return environment().from_string(text)

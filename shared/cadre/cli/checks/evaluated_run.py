"""What came of runs that were tried again, as a table, as lines, as JSON."""

from collections.abc import Sequence
from typing import Any

import msgspec

from cadre.cli.terminal.table import table
from cadre.testing.evaluation import Trial
from cadre.testing.kept_run import RunOutcome
from cadre.views.words import number

_SUMMED = ("steps", "tokens", "cost")
_HEADERS = ["RUN", "AGENT", "STATE", "STEPS", "CALLS", "TOKENS", "COST", "ANSWER"]


class EvaluatedRun(msgspec.Struct, frozen=True, kw_only=True):
    """An exported run, or a task, that was tried; without a trial, `problem` says why it could not be."""

    name: str
    file: str
    agent: str
    trial: Trial | None = None
    problem: str = ""
    is_judged: bool = False
    """Whether a judge was asked where the answers differ."""

    @property
    def is_worse(self) -> bool:
        """Whether it is not as good as it was: it succeeded and does not, a judge says so, or it cannot be tried."""
        if self.trial is None:
            return True
        was = self.trial.before.state if self.trial.before is not None else "success"
        if was == "success" != self.trial.now.state:
            return True
        return self.trial.verdict is not None and self.trial.verdict.verdict == "worse"


def as_json(found: Sequence[EvaluatedRun]) -> list[dict[str, Any]]:
    """All that is known of each."""
    return [{**msgspec.to_builtins(one), "is_worse": one.is_worse} for one in found]


def as_text(found: Sequence[EvaluatedRun]) -> str:
    """A table with a line for all together."""
    return f"{table(_HEADERS, [_row(one) for one in found])}\n{_totals(found)}"


def line_of(one: EvaluatedRun) -> str:
    """What came of one, for whoever waits for all."""
    state = one.trial.now.state if one.trial is not None else "not tried"
    return f"{one.name}: {state}, {_answer(one)}"


def _row(one: EvaluatedRun) -> list[str]:
    if one.trial is None:
        return [one.name, one.agent or "-", "not tried", "-", "-", "-", "-", one.problem]
    now = one.trial.now
    before = _before(one.trial)
    return [
        one.name,
        one.agent,
        _change(before.state if before is not None else None, now.state),
        *(
            _change(_figure(before, what), _figure(now, what))
            for what in ("steps", "calls", "tokens", "cost")
        ),
        _answer(one),
    ]


def _before(trial: Trial) -> RunOutcome | None:
    """What it took then: of a task somebody may know the answer, and nobody that."""
    return trial.before if trial.before is not None and trial.before.steps else None


def _figure(outcome: RunOutcome | None, what: str) -> str | None:
    if outcome is None:
        return None
    value = getattr(outcome, what)
    return f"{value:.4g}" if what == "cost" else number(value) if what == "tokens" else str(value)


def _answer(one: EvaluatedRun) -> str:
    trial = one.trial
    if trial is None:
        return one.problem
    if trial.verdict is not None:
        answer = f"{trial.verdict.verdict}: {trial.verdict.why}"
    elif trial.now.error:
        answer = trial.now.error
    elif trial.same_answer is None:
        answer = "-"
    else:
        answer = (
            "same" if trial.same_answer else "other, and the judge said nothing" if one.is_judged else "other"
        )
    if trial.beyond_history:
        answer += f" (not called: {', '.join(trial.beyond_history)})"
    return answer


def _change(before: str | None, now: str | None) -> str:
    return str(now) if before in (None, now) else f"{before} -> {now}"


def _totals(found: Sequence[EvaluatedRun]) -> str:
    trials = [one.trial for one in found if one.trial is not None]
    same = sum(trial.same_answer is True for trial in trials)
    other = sum(
        trial.now.state == "success" and trial.same_answer is False and trial.verdict is None
        for trial in trials
    )
    worse = sum(one.is_worse for one in found if one.trial is not None)
    compared = [(before, trial.now) for trial in trials if (before := _before(trial)) is not None]
    sums = []
    for what in _SUMMED:
        then = f"{sum(getattr(before, what) for before, _ in compared):.6g}" if compared else None
        outcomes = [now for _, now in compared] if compared else [trial.now for trial in trials]
        sums.append(f"{what} {_change(then, f'{sum(getattr(now, what) for now in outcomes):.6g}')}")
    many = "1 run" if len(found) == 1 else f"{len(found)} runs"
    left = f", {len(found) - len(trials)} not tried" if len(trials) < len(found) else ""
    others = f", {other} with another" if other else ""
    return f"{many}: {same} with the same answer{others}, {worse} worse{left}; {', '.join(sums)}"

"""What the model wrote, read as a solution: as its schema has it, or nearly so."""

from typing import Any, NamedTuple

from cadre.engine.answers.json_text import ReadingError, read_arguments, read_object
from cadre.engine.calls.call_check import input_schema
from cadre.engine.calls.calls_in_text import read_call, schemas_of
from cadre.engine.tool_names import FINAL_ANSWER
from cadre.journal.events import RequestedCall
from cadre.journal.run import Run
from cadre.kinds.solution.records import ProposedCall
from cadre.kinds.solution.schema import without_nulls
from cadre.kinds.solution.section import ImplicitActivity, solution_of
from cadre.spec.answer_schema import misfits


class Solution(NamedTuple):
    """A solution as it was meant."""

    calls: list[ProposedCall]
    output: Any

    @property
    def explicit(self) -> list[ProposedCall]:
        """The calls that a tool or member is to make."""
        return [call for call in self.calls if not call.implicit]


def read_solution(run: Run, content: str, native: list[RequestedCall]) -> Solution:
    """The solution that an answer holds; `native` are calls that it makes through the API all the same.

    Raises ReadingError with what is wrong: no solution, or an implicit call that does not fit its schemas.
    """
    broken = next((one.error for one in native if one.error is not None), None)
    if broken is not None and not content.strip():
        raise ReadingError(broken.message)
    if native and not content.strip():
        found = Solution([ProposedCall(name=one.name, arguments=read_arguments(one)) for one in native], None)
    else:
        found = _solution_in(run, read_object(content, "solution", "calls", "output"))
    last = found.calls[0] if len(found.calls) == 1 else None
    if last is not None and last.name == FINAL_ANSWER and found.output is None:
        return Solution([], last.arguments.get("answer"))
    return Solution([_meant(run, call) for call in found.calls], found.output)


def _solution_in(run: Run, value: dict[str, Any]) -> Solution:
    inner = value.get("solution")
    whole = inner if isinstance(inner, dict) else value
    calls = whole.get("calls") or []
    if isinstance(calls, dict):
        calls = [calls]
    if not isinstance(calls, list):
        raise ReadingError('"calls" must be a list of calls, [] when none is left to make')
    return Solution([_call(run, one, place) for place, one in enumerate(calls, 1)], whole.get("output"))


def _call(run: Run, value: Any, place: int) -> ProposedCall:
    assert run.spec is not None
    implicit, schemas = solution_of(run.spec).implicit, schemas_of(run)
    try:
        call = read_call(value, lambda name: implicit[name].arguments if name in implicit else schemas(name))
    except ReadingError as error:
        raise ReadingError(f"Call {place} of your solution: {error}") from error
    inner = value["function"] if isinstance(value.get("function"), dict) else value
    return ProposedCall(name=call.name, arguments=read_arguments(call), outcome=inner.get("outcome"))


def _meant(run: Run, call: ProposedCall) -> ProposedCall:
    """The call as what it is: implicit with its outcome, or explicit without the nulls that stand for nothing."""
    assert run.spec is not None
    activity = solution_of(run.spec).implicit.get(call.name)
    if activity is not None:
        _check_implicit(call, activity)
        return ProposedCall(name=call.name, arguments=call.arguments, implicit=True, outcome=call.outcome)
    schema = input_schema(run, call.name)
    arguments = without_nulls(schema, call.arguments) if schema is not None else call.arguments
    return ProposedCall(name=call.name, arguments=arguments)


def _check_implicit(call: ProposedCall, activity: ImplicitActivity) -> None:
    wrong = misfits(activity.arguments, call.arguments) if activity.arguments else []
    if wrong:
        raise ReadingError(f"The arguments of {call.name!r} do not fit: {'; '.join(wrong)}")
    if call.outcome is None:
        raise ReadingError(f"{call.name!r} is run by nobody but you: give its outcome with it")
    wrong = misfits(activity.outcome, call.outcome) if activity.outcome else []
    if wrong:
        raise ReadingError(f"The outcome of {call.name!r} does not fit: {'; '.join(wrong)}")

"""An answer is proposed before it is given: it must fit the agent's output schema and pass the agent's checks.

What is wrong with it becomes an observation, and the loop goes on. Expressions are decided at once; checks by tools
are calls of the step like any other, but for the model, which has not made them, and for approvals: nothing but the
agent's own answer goes into them.
"""

from __future__ import annotations

from typing import Any

from cadre.engine.calls.call_check import FINAL_ANSWER
from cadre.engine.steps import after_step, finished
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival
from cadre.journal.run import Run
from cadre.protocol.messages import ErrorInfo, ToolResult
from cadre.protocol.topology import call_id
from cadre.spec.answer_schema import misfits
from cadre.spec.policy import is_expression, why_untrue

NOT_PASSED = "AgentError"
"""Type of the error: smolagents' class for a check that fails."""


def propose(
    run: Run, answer: Any, arrival: Arrival, step: int, *, made: int, arguments: dict[str, Any] | None = None
) -> list[ev.AnyEvent]:
    """What follows from an answer given in step `step`: the end of the run, calls of the tools that check it, or
    another step.

    `made` calls of the step are told of already. `arguments` are those of `final_answer` as the model wrote them;
    None when code has given the answer.
    """
    spec = run.spec
    assert spec is not None
    wrong = misfits(spec.output_schema, answer) if spec.output_schema is not None else []
    if wrong:
        text = f"The answer does not fit the output schema: {'; '.join(wrong)}"
        return _turned_down(run, arrival, step, arguments, text)
    values = _values(run, answer)
    failed = [
        f"Check {check!r} failed: {why}"
        for check in spec.checks
        if is_expression(check) and (why := why_untrue(check, values)) is not None
    ]
    if failed:
        return _turned_down(run, arrival, step, arguments, "\n".join(failed))
    tools = [check for check in spec.checks if not is_expression(check)]
    if not tools:
        return _given(run, answer, step)
    checks = {call_id(run.id, step, index): tool for index, tool in enumerate(tools, made)}
    proposed = ev.AnswerProposed(step=step, answer=answer, checks=checks, arguments=arguments)
    given = {"answer": answer, "task": values["task"]}
    return [
        proposed,
        *(ev.ToolCalled(call=call, tool=tool, arguments=given) for call, tool in checks.items()),
    ]


def is_check(run: Run, call: str) -> bool:
    return run.proposal is not None and call in run.proposal.checks


def on_check(run: Run, call: str, problem: str, arrival: Arrival) -> list[ev.AnyEvent]:
    """What follows when one check is over; `problem` is "" when the answer passed it."""
    proposal = run.proposal
    assert proposal is not None
    checked = ev.AnswerChecked(call=call, check=proposal.checks[call], problem=problem)
    problems = {**proposal.problems, call: problem}
    if problems.keys() != proposal.checks.keys():
        return [checked]
    failed = [
        f"Check {check!r} failed: {problems[one]}" for one, check in proposal.checks.items() if problems[one]
    ]
    if not failed:
        return [checked, *_given(run, proposal.answer, proposal.step)]
    return [checked, *_turned_down(run, arrival, proposal.step, proposal.arguments, "\n".join(failed))]


def problem_of(result: ToolResult) -> str:
    """Why the check's result does not let the answer pass; "" when it does. As in Python, nothing, zero and what is
    empty are false; so is the text `false`, for tools that can answer with text only."""
    if result.error is not None:
        return result.error.message
    output = result.output
    if not output or (isinstance(output, str) and output.strip().casefold() == "false"):
        return "the answer does not pass it"
    return ""


def _values(run: Run, answer: Any) -> dict[str, Any]:
    task = run.task
    assert task is not None
    return {"answer": answer, "task": task.task, "additional_args": task.additional_args}


def _given(run: Run, answer: Any, step: int) -> list[ev.AnyEvent]:
    return [ev.StepFinished(step=step), finished(run, "success", output=answer)]


def _turned_down(
    run: Run, arrival: Arrival, step: int, arguments: dict[str, Any] | None, text: str
) -> list[ev.AnyEvent]:
    error = ErrorInfo(NOT_PASSED, text)
    if arguments is None:
        return after_step(run, arrival, step, error=error)
    refused = ev.CallRefused(
        call=call_id(run.id, step, 0), name=FINAL_ANSWER, arguments=arguments, error=error
    )
    return [refused, *after_step(run, arrival, step)]

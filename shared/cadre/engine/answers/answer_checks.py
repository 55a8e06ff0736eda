"""An answer is proposed before it is given: it must fit the agent's output schema and pass the agent's checks.

What is wrong with it becomes an observation, and the loop goes on. Expressions are decided at once; checks by tools
are calls of the step like any other, but for the model, which has not made them, and for approvals: nothing but the
agent's own answer goes into them.
"""

from typing import Any

from cadre.journal import events as ev
from cadre.journal.run import ActionStep, Run, TaskStep
from cadre.protocol.messages import ToolResult
from cadre.protocol.tagged import for_schema
from cadre.protocol.topology import call_id
from cadre.spec.answer_schema import misfits
from cadre.spec.names import FINAL_ANSWER
from cadre.spec.policy import is_expression, why_untrue


def problem_with(run: Run, answer: Any) -> str | None:
    """Return why the answer does not fit the output schema or an expression; None when it does."""
    spec = run.spec
    assert spec is not None
    wrong = misfits(spec.output_schema, for_schema(answer)) if spec.output_schema is not None else []
    if wrong:
        return f"The answer does not fit the output schema: {'; '.join(wrong)}"
    if not spec.checks:
        return None
    values = _values(run, answer)
    failed = [
        f"Check {check!r} failed: {why}"
        for check in spec.checks
        if is_expression(check) and (why := why_untrue(check, values)) is not None
    ]
    return "\n".join(failed) if failed else None


def check_calls(run: Run, step: int, answer: Any, arguments: dict[str, Any] | None) -> list[ev.AnyEvent]:
    """The calls of the tools that check the answer of a step; [] without such tools.

    `arguments` are those of `final_answer` as the model wrote them, whose call is the step's first; None when the
    answer came in another way.
    """
    spec = run.spec
    assert spec is not None
    tools = [check for check in spec.checks if not is_expression(check)]
    if not tools:
        return []
    made = 1 if arguments is not None else len(run.current.calls) if run.current is not None else 0
    checks = {call_id(run.id, step, index): tool for index, tool in enumerate(tools, made)}
    proposed = ev.AnswerProposed(step=step, answer=answer, checks=checks, arguments=arguments)
    values = _values(run, answer)
    asked = {"answer": answer, "task": values["task"]}
    with_calls = {**asked, "calls": values["calls"]} if run.checks_with_calls else asked
    return [
        proposed,
        *(
            ev.ToolCalled(call=call, tool=tool, arguments=with_calls if tool in run.checks_with_calls else asked)
            for call, tool in checks.items()
        ),
    ]


def check_event(run: Run, call: str, problem: str) -> ev.AnswerChecked:
    """One check is over; `problem` is "" when the answer passed it."""
    assert run.proposal is not None
    return ev.AnswerChecked(call=call, check=run.proposal.checks[call], problem=problem)


def verdict(run: Run) -> str | None:
    """Return what all checks came to: "" when the answer passed them all, why it did not, or None while one is still to
    come."""
    proposal = run.proposal
    assert proposal is not None
    problems = proposal.problems
    if problems.keys() != proposal.checks.keys():
        return None
    return "\n".join(
        f"Check {check!r} failed: {problems[one]}" for one, check in proposal.checks.items() if problems[one]
    )


def problem_of(result: ToolResult) -> str:
    """Return why the check's result does not let the answer pass; "" when it does. As in Python, nothing, zero and what
    is empty are false; so is the text `false`, for tools that can answer with text only.
    """
    if result.error is not None:
        return result.error.message
    output = result.output
    if not output or (isinstance(output, str) and output.strip().casefold() == "false"):
        return "the answer does not pass it"
    return ""


def _values(run: Run, answer: Any) -> dict[str, Any]:
    task = run.task
    assert task is not None
    return {
        "answer": answer,
        "task": task.task,
        "inputs": task.inputs,
        "calls": _calls_of(run),
    }


def _calls_of(run: Run) -> list[dict[str, Any]]:
    """The calls that the run has made for its task, in their order, each with the text of its error or None."""
    steps = [*run.steps, run.current] if run.current is not None else run.steps
    begin = max((place for place, step in enumerate(steps) if isinstance(step, TaskStep)), default=-1)
    return [
        {
            "name": call.name,
            "arguments": call.arguments,
            "error": call.error.message if call.error is not None else None,
        }
        for step in steps[begin + 1 :]
        if isinstance(step, ActionStep)
        for call in step.asked
        if call.name != FINAL_ANSWER
    ]

"""Check that a requested call can be made: the name exists, the arguments fit, delegation stays in bounds."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

import msgspec

from cadre.engine.kind import kind_of
from cadre.journal.run import Run
from cadre.protocol.messages import ErrorInfo
from cadre.protocol.tagged import for_schema
from cadre.recent import Recent
from cadre.spec.answer_schema import SchemaCheck, TooMuchToCheck
from cadre.spec.kinds import facts_of
from cadre.spec.member_call import ADDITIONAL, as_declared, call_schema
from cadre.spec.names import FINAL_ANSWER

_MOST_VALIDATORS = 1024

FINAL_ANSWER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"answer": {"description": "The final answer to the task, complete."}},
    "required": ["answer"],
    "additionalProperties": False,
}


class CallNotAllowed(Exception):
    """The call cannot be made; the text is for the model. `facts` are figures of other runs that say so."""

    def __init__(self, message: str, facts: Mapping[str, float] = MappingProxyType({})) -> None:
        super().__init__(message)
        self.facts = {**facts}
        self.info = ErrorInfo("invalid-call", message)


def input_schema(run: Run, name: str) -> dict[str, Any] | None:
    """The JSON Schema of what a tool, a member or `final_answer` takes; None if it does not exist now."""
    if name in run.tools:
        return run.tools[name].input_schema
    if name in run.members:
        return call_schema(run.members[name].input_schema)
    return FINAL_ANSWER_SCHEMA if name == FINAL_ANSWER == _ending(run) else None


def as_written(run: Run, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments as a call of the run has them: a member's under the names that its schema gives them."""
    if name in run.tools or name not in run.members:
        return arguments
    return as_declared(run.members[name].input_schema, arguments)


def as_judged(run: Run, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the same with the values of variables in place of their names, as the call is sent."""
    given = kind_of(run).arguments(run, arguments)
    further = given.get(ADDITIONAL)
    if isinstance(further, dict) and name not in run.tools:
        given = {**given, ADDITIONAL: kind_of(run).arguments(run, further)}
    return as_written(run, name, given)


_PLACEHOLDER_ANSWER = ErrorInfo(
    "invalid-call",
    "The answer is a placeholder, not the answer itself. First call a tool for what you do not know; then write the"
    " answer itself in its place, in words or as a value.",
)
_STANDS_IN = re.compile(
    r"\W*(?:(?:the|your|my)[\s_]+)?(?:final[\s_]+)?answer(?:[\s_]+(?:goes[\s_]+)?here|[\s_]+to[\s_]+the[\s_]+task)?\W*",
    re.IGNORECASE,
)
"""Texts that small models write where they copy the form of an answer: `the answer`, `<your final answer>`."""


def placeholder_error(answer: object) -> ErrorInfo | None:
    """Return why this is no answer, for the model, where it only stands in for one; None where it may be one."""
    if not isinstance(answer, str):
        return None
    stands_in = answer.strip() in ("…", "...") or _STANDS_IN.fullmatch(answer) is not None
    return _PLACEHOLDER_ANSWER if stands_in else None


def _ending(run: Run) -> str:
    return facts_of(run.spec, run.decided_by).ending if run.spec is not None else FINAL_ANSWER


def check_call(run: Run, name: str, arguments: dict[str, Any]) -> None:
    """Raise CallNotAllowed unless the run may make this call now."""
    schema = input_schema(run, name)
    if schema is None:
        known = ", ".join([*run.tools, *run.members, _ending(run)])
        gone = f" {name!r} is not running at the moment." if name in run.missing else ""
        raise CallNotAllowed(f"Unknown tool {name!r}, should be one of: {known}.{gone}")
    check_arguments(name, schema, arguments)
    if name == FINAL_ANSWER and (error := placeholder_error(arguments.get("answer"))) is not None:
        raise CallNotAllowed(error.message)
    if name in run.members and name not in run.tools:
        check_delegation(run, name)


def check_arguments(name: str, schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Raise CallNotAllowed naming every argument that does not fit the schema."""
    try:
        check = _check_of(schema)
    except ValueError as error:
        reason = str(error).splitlines()[0]
        raise CallNotAllowed(f"{name!r} cannot be called: its input schema is wrong: {reason}") from error
    try:
        problems = [_explain(error, schema) for error in check.errors(for_schema(arguments))]
    except TooMuchToCheck as error:
        problems = [str(error)]
    if problems:
        form = msgspec.json.encode(open_arguments(schema)).decode()
        raise CallNotAllowed(f"Wrong arguments for {name!r}: {'; '.join(problems)}. Their form: {form}")


_OPEN: dict[str, Any] = {"integer": 0, "number": 0, "boolean": True, "array": [], "object": {}}
"""The stand-in for a value of each type."""


def open_arguments(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that a function must be given, left open: small models copy a form and fill no schema."""
    about = schema.get("properties", {})
    kinds = {name: about.get(name, {}).get("type") for name in schema.get("required", [])}
    return {name: _OPEN.get(kind, "…") if isinstance(kind, str) else "…" for name, kind in kinds.items()}


_checks = Recent[int, tuple[dict[str, Any], SchemaCheck]](_MOST_VALIDATORS)
"""By the schema's identity: the runs of a process share the cards of the registry. The schema is kept
with its check, so that no other can take its identity."""


def _check_of(schema: dict[str, Any]) -> SchemaCheck:
    known = _checks.get(id(schema))
    if known is None:
        known = _checks[id(schema)] = (schema, SchemaCheck(schema))
    else:
        _checks.move_to_end(id(schema))
    return known[1]


def _explain(error: Any, schema: dict[str, Any]) -> str:
    if path := ".".join(str(part) for part in error.instance_path):
        return f"argument {path}: {error.message}"
    unknown, known = getattr(error.kind, "unexpected", []), [*schema.get("properties", {})]
    close = {near[0]: None for name in unknown if (near := get_close_matches(name, known, 1))}
    return f"{error.message}, did you mean {', '.join(map(repr, close))}?" if close else str(error.message)


def check_delegation(run: Run, member: str, *, is_part: bool = False) -> None:
    """Raise CallNotAllowed when the tree is too deep already, or the member waits for this very run; a part of the
    run's own work is no circle."""
    if run.spec is None or run.task is None:
        return
    above = [*run.task.path, run.agent]
    limits = run.spec.limits
    if run.budget is not None and run.budget.depth is not None and run.budget.depth < 1:
        raise CallNotAllowed(
            f"{member!r} cannot be asked: the run's budget allows no further level of delegation."
            " Do the work with your own tools."
        )
    if len(above) > limits.depth:
        raise CallNotAllowed(
            f"{member!r} cannot be asked: the delegation is {len(run.task.path)} levels deep already"
            f" ({' > '.join(above)}) and the limit is {limits.depth}. Do the work with your own tools."
        )
    if not is_part and above.count(member) > limits.cycles:
        raise CallNotAllowed(
            f"{member!r} cannot be asked: it is itself waiting for this answer ({' > '.join(above)})."
            " Do the work with your own tools or ask somebody else."
        )

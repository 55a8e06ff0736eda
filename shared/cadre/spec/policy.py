"""Approval policies: `never`, `always`, or `when:` with an expression over the arguments of a call.

Expressions are Jinja2's (`amount > 100 and currency != "EUR"`), evaluated in its sandbox: they read arguments and
change nothing. When one cannot be evaluated, a person is asked.
"""

from collections.abc import Mapping
from typing import Any

from cadre.spec.expressions import ExpressionError, NoTemplate, check_expression, holds

NEVER = "never"
ALWAYS = "always"
_WHEN = "when:"


def check_policy(policy: str) -> None:
    """Check a policy. Raises ValueError with the form that it must have."""
    if policy in (NEVER, ALWAYS):
        return
    if not policy.startswith(_WHEN) or not policy[len(_WHEN) :].strip():
        raise ValueError(f"{policy!r}: write never, always or 'when: <expression over the arguments>'")
    try:
        check_expression(policy[len(_WHEN) :].strip())
    except NoTemplate as error:
        raise ValueError(f"{policy!r}: {error.why}") from error


def reason_to_ask(policy: str, arguments: Mapping[str, Any]) -> str | None:
    """Return why a person must approve a call with these arguments; None if no approval is needed."""
    if policy == NEVER:
        return None
    if policy == ALWAYS:
        return "every call needs approval"
    if not policy.startswith(_WHEN):
        return f"{policy!r} is no policy that this version knows"
    try:
        is_true = holds(policy[len(_WHEN) :], arguments)
    except ExpressionError as error:
        # If the expression fails for any reason (a missing argument, a text compared to a number), a person decides.
        return f"{policy}: {error.why}"
    return policy if is_true else None


def is_expression(text: str) -> bool:
    """Return whether the text is a `when:` policy, valid or not."""
    return text.startswith(_WHEN)


def expression_of(text: str) -> str | None:
    """The expression of a `when:` policy, valid or not; None for any other text."""
    return text[len(_WHEN) :] if is_expression(text) else None


def why_untrue(policy: str, values: Mapping[str, Any]) -> str | None:
    """Return why a `when:` is not true of the values; None when it is."""
    try:
        return None if holds(policy[len(_WHEN) :], values) else "it is not true of this answer"
    except ExpressionError as error:
        # An answer that makes the expression fail has not passed.
        return f"it cannot be evaluated: {error.why}"


def names_in(policy: str) -> set[str]:
    """The names of the arguments in a `when:`. Raises ValueError for one that cannot be parsed."""
    if not policy.startswith(_WHEN):
        return set()
    check_policy(policy)
    return set(check_expression(policy[len(_WHEN) :].strip()))

"""Approval policies: `never`, `always`, or `when:` with an expression over the arguments of a call; and the sentence
that asks a person for it (`Refund {amount} € for {order}`).

Expressions are Jinja2's (`amount > 100 and currency != "EUR"`), evaluated in its sandbox: they read arguments and
change nothing. When one cannot be evaluated, a person is asked.
"""

from collections.abc import Mapping
from string import Formatter
from typing import Any

import msgspec

from cadre.spec.expressions import ExpressionError, NoTemplate, check_expression, holds

NEVER = "never"
ALWAYS = "always"
_WHEN = "when:"

_MAX_SENTENCE_CHARS = 300
_MAX_VALUE_CHARS = 80


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


def names_in_sentence(sentence: str) -> set[str]:
    """Return the names of the arguments in a sentence that asks for a call. Raises ValueError with the form that it
    must have."""
    if not sentence.strip() or len(sentence) > _MAX_SENTENCE_CHARS:
        raise ValueError(f"write 1 to {_MAX_SENTENCE_CHARS} characters")
    try:
        parts = [*Formatter().parse(sentence)]
    except ValueError as error:
        raise ValueError(f"{sentence!r}: {str(error).lower()}; write {{name}}, and {{{{ or }}}} for a brace") from error
    for _, name, form, conversion in parts:
        if name is not None and (form or conversion or not name):
            raise ValueError(f"{sentence!r}: write the name of a parameter alone in braces: {{amount}}")
    return {name for _, name, _, _ in parts if name is not None}


def filled_sentence(sentence: str, arguments: Mapping[str, Any]) -> str:
    """Return a sentence that asks for a call with its arguments in their places, each cut to 80 characters."""
    parts = []
    for literal, name, _, _ in Formatter().parse(sentence):
        parts.append(literal)
        if name is not None:
            parts.append(_shown(arguments[name]) if name in arguments else "…")
    return "".join(parts)


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _MAX_VALUE_CHARS else f"{text[: _MAX_VALUE_CHARS - 1]}…"

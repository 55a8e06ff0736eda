"""Approval policies: `never`, `always`, or `when:` with an expression over the arguments of a call.

Expressions are Jinja2's (`amount > 100 and currency != "EUR"`), evaluated in its sandbox: they read arguments and
change nothing. When one cannot be evaluated, a person is asked.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

NEVER = "never"
ALWAYS = "always"
_WHEN = "when:"


def check_policy(policy: str) -> None:
    """Checks a policy. Raises ValueError with the form that it must have."""
    if policy in (NEVER, ALWAYS):
        return
    if not policy.startswith(_WHEN) or not policy[len(_WHEN) :].strip():
        raise ValueError(f"{policy!r}: write never, always or 'when: <expression over the arguments>'")
    _compiled(policy)


def reason_to_ask(policy: str, arguments: Mapping[str, Any]) -> str | None:
    """Why a person must approve a call with these arguments; None if nobody must."""
    if policy == NEVER:
        return None
    if policy == ALWAYS:
        return "every call needs approval"
    if not policy.startswith(_WHEN):
        return f"{policy!r} is no policy that this version knows"
    try:
        holds = _compiled(policy)(dict(arguments))
    except Exception as error:
        # Whatever makes the expression fail (a missing argument, a text compared to a number), a person decides.
        return f"{policy}: {error}"
    return policy if holds else None


def is_expression(text: str) -> bool:
    """Whether the text is a `when:` policy, valid or not."""
    return text.startswith(_WHEN)


def expression_of(text: str) -> str | None:
    """The expression of a `when:` policy, valid or not; None for any other text."""
    return text[len(_WHEN) :] if is_expression(text) else None


def why_untrue(policy: str, values: Mapping[str, Any]) -> str | None:
    """Why a `when:` is not true of the values; None when it is."""
    try:
        return None if _compiled(policy)(dict(values)) else "it is not true of this answer"
    except Exception as error:
        # An answer that makes the expression fail has not passed.
        return f"it cannot be evaluated: {error}"


def names_in(policy: str) -> set[str]:
    """The names of the arguments in a `when:`. Raises ValueError for one that cannot be parsed."""
    if not policy.startswith(_WHEN):
        return set()
    check_policy(policy)
    from jinja2 import meta
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment()
    tree = environment.parse("{% if " + policy[len(_WHEN) :].strip() + " %}{% endif %}")
    return set(meta.find_undeclared_variables(tree)) - set(environment.globals)


@lru_cache(maxsize=256)
def _compiled(policy: str) -> Callable[[dict[str, Any]], Any]:
    # Imported here: commands that evaluate no policy should not load a template engine.
    from jinja2 import StrictUndefined, TemplateSyntaxError

    from cadre.spec.bounded_environment import BoundedEnvironment

    environment = BoundedEnvironment(undefined=StrictUndefined)
    text = policy[len(_WHEN) :].strip()
    try:
        expression = environment.compile_expression(text, undefined_to_none=False)
    except TemplateSyntaxError as error:
        raise ValueError(f"{policy!r}: {error.message}") from error

    def evaluate(arguments: dict[str, Any]) -> bool:
        return bool(expression(arguments))

    return evaluate

"""Expressions that would take all time or memory there is fail at once, wherever one is written."""

import pytest

from cadre.automation.templates import render
from cadre.errors import SpecError
from cadre.spec.expressions import ExpressionError, filled, holds
from cadre.spec.policy import check_policy, reason_to_ask, why_untrue

TOO_MUCH = (
    "9000000000 ** 9000000000 > 1",
    "n ** n > 1",
    "(n * n) ** (n * n) > 1",
    "text * n == text",
    "n * text == text",
    "[text] * n == 1",
    "'%1000000000d' % 3 == text",
    "'%*d' % (n, 3) == text",
    "text|center(n) == text",
    "text|indent(n) == text",
)
VALUES = {"n": 9_000_000_000, "text": "xy"}


@pytest.mark.parametrize("expression", TOO_MUCH)
def test_what_would_take_too_much_fails(expression: str) -> None:
    policy = f"when: {expression}"
    check_policy(policy)  # it is known only when the values are
    assert reason_to_ask(policy, VALUES) is not None
    assert (why_untrue(policy, VALUES) or "").startswith("it cannot be evaluated")
    with pytest.raises(ExpressionError):
        holds(expression, VALUES)
    with pytest.raises(SpecError):
        render("task", "{{ " + expression + " }}", VALUES)


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("{{ 2 ** 64 }}", 2**64),
        ("{{ 2 ** 0.5 > 1.4 }}", True),
        ("{{ 2 ** -n }}", 0.0),
        ("{{ 1 ** n }}", 1),
        ("{{ '-' * 40 }}", "-" * 40),
        ("{{ 3 * 1.5 }}", 4.5),
        ("{{ [1] * 3 }}", [1, 1, 1]),
        ("{{ n % 7 }}", VALUES["n"] % 7),  # type: ignore[operator]
        ("{{ '%05.1f' % 3 }}", "003.0"),
        ("{{ 'a'|center(5) }}", "  a  "),
        ("{{ 'a\nb'|indent }}", "a\n    b"),
        ("{{ 'a\nb'|indent(2, first=true) }}", "  a\n  b"),
    ],
)
def test_what_people_write_has_its_value(template: str, value: object) -> None:
    assert filled(template, VALUES) == value

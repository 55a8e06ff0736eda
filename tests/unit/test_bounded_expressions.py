"""Expressions that would take all time or memory there is fail at once, wherever one is written."""

import pytest
from jinja2.exceptions import SecurityError

from cadre.automation.schedule import render
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
    "text.ljust(n) == text",
    "'{:9000000000}'.format(3) == text",
    "'%9000000000d'|format(3) == text",
    "long.replace('x', long) == text",
    "long|replace('', long) == text",
    "([long] * 100)|join == text",
    "(items * 9)|join(long) == text",
)
VALUES = {"n": 9_000_000_000, "text": "xy", "long": "x" * 200_000, "items": ["a"] * 100_000}

NS = "{% set ns = namespace(x='ab') %}"
TOO_MUCH_WORK = (
    "{% for i in items %}{% for j in items %}{% endfor %}{% endfor %}",
    "{% for i in items %}{{ items | sort | length }}{% endfor %}",
    "{% for i in items %}{% if 'b' in items %}b{% endif %}{% endfor %}",
    "{% for i in items | select %}{% for j in range(90000) %}{% endfor %}{% endfor %}",
    "{% for i in items %}{{ long }}{% endfor %}",
    "{% set all %}{% for i in items %}{{ long }}{% endfor %}{% endset %}{{ all }}",
    NS + "{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
    NS + "{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
    NS + "{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
    NS + "{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
)


@pytest.mark.parametrize("expression", TOO_MUCH)
def test_what_would_take_too_much_fails(expression: str) -> None:
    policy = f"when: {expression}"
    check_policy(policy)  # it is known only when the values are
    assert reason_to_ask(policy, VALUES) is not None
    assert why_untrue(policy, VALUES) is not None
    with pytest.raises(ExpressionError):
        holds(expression, VALUES)
    with pytest.raises(SpecError):
        render("task", "{{ " + expression + " }}", VALUES)


@pytest.mark.parametrize("template", TOO_MUCH_WORK)
def test_loops_and_texts_that_grow_end_by_their_work(template: str) -> None:
    with pytest.raises(ExpressionError) as filling:
        filled(template, VALUES)
    with pytest.raises(SpecError) as rendering:
        render("task", template, VALUES)
    assert type(filling.value.__cause__) is type(rendering.value.__cause__) is OverflowError


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
        ("{{ items|length }} {{ items[:2]|join('-') }}", "100000 a-a"),
        ("{% for i in items[:9000] %}{% if loop.last %}{{ loop.length }}{% endif %}{% endfor %}", "9000"),
        ("{% for i in 'ab'|map('upper') %}{{ i }}{{ loop.index }} {% endfor %}", "A1 B2 "),
        ("{{ none_there | default('b') }}", "b"),
        ("{% for i in ['ab'] %}{{ i.upper() }}{{ i.find('b') }}{{ '-'.join([i]) }}{% endfor %}", "AB1ab"),
        (
            "{% for i in [1] %}{{ {'a': 'b'}.get('a') }}{{ dict(c=i).c }}{{ 'x y'.split()[i] }}{% endfor %}",
            "b1y",
        ),
        ("{{ 'aXb' | replace('X', '-') }} {{ 'a'.join(['x', 'y']) }} {{ '%3d' | format(7) }}", "a-b xay   7"),
    ],
)
def test_what_people_write_has_its_value(template: str, value: object) -> None:
    assert filled(template, VALUES) == value


@pytest.mark.parametrize(
    "template",
    [
        "{{ ('f' * 90000) | int(0, 16) }}",
        "{{ [('f' * 4000) | int(0, 16)] }}",
        r"{{ '\ud800' }}",
        r"a {{ '\udfff' }}",
        r"{{ {'\ud800': 1} }}",
        "{{ 1e308 * 10 }}",
        "{{ [1e308 * 10 - 1e308 * 10] }}",
    ],
)
def test_what_a_journal_cannot_hold_has_no_value(template: str) -> None:
    with pytest.raises(ExpressionError) as refused:
        filled(template, VALUES)
    assert isinstance(refused.value.__cause__, ValueError | OverflowError)


def test_a_task_is_no_half_of_a_surrogate_pair() -> None:
    with pytest.raises(SpecError):
        render("task", r"{{ '\ud800' }}", VALUES)


def test_a_key_wins_over_a_method_of_its_name_unless_that_is_called() -> None:
    values = {"args": {"items": [1, 2], "keys": "k", "get": {"items": 3}}}
    assert filled("{{ args.items }}", values) == [1, 2]
    assert filled("{{ args.get.items + 1 }}", values) == 4
    assert filled("{{ args.keys }} of {{ args.items | length }}", values) == "k of 2"
    assert filled("{% for key, value in args.items() %}{{ key }} {% endfor %}", values) == "items keys get "
    assert filled("{{ args.get('keys') }}", values) == "k"
    assert holds("args.items[0] == 1 and 'keys' in args.keys()", values)
    with pytest.raises(ExpressionError) as refused:
        filled("{{ args.__class__ }}", values)
    assert type(refused.value.__cause__) is SecurityError

"""Charges bound the work of templates: test it by a search over templates, and operation by operation."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import repeat
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jinja2 import TemplateError

from cadre.spec.expressions import ExpressionError, NoTemplate, check_template, environment, filled, parsed
from cadre.spec.templates.bounded_environment import (
    MAX_LEVELS,
    MAX_LOOPS_WITHIN,
    MAX_SOURCE_CHARACTERS,
    MAX_TOKENS,
)
from cadre.spec.templates.template_filters import allowed_filters
from cadre.spec.templates.template_prices import MAX_TEXT_CHARACTERS
from cadre.spec.templates.template_work import MAX_DECISION_WORK, MAX_WORK, one_decision
from harness.template_work import operations, values

FAILS = (TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
NOW = datetime(2026, 1, 2, tzinfo=UTC)


def rendered(template: str, given_values: dict[str, Any]) -> tuple[int, str | None]:
    """The units that a rendering took, and its text; None where it failed."""
    compiled = environment().from_string(template)
    context = compiled.new_context({"n": 12345678901234567, "now": NOW, **given_values})
    try:
        text = environment().concat(compiled.root_render_func(context))
    except FAILS:
        text = None
    return context.work.spent, text


@contextmanager
def counted_calls() -> Iterator[Callable[[], int]]:
    """Counts the calls of functions, Python's and C's: a loop that is not charged is seen by them."""
    count = 0

    def look(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield lambda: count
    finally:
        sys.setprofile(before)


VALUES = {name: value for size in (3, 40, 3_000) for name, value in values(size)}
OPERATIONS = [*operations()]


def blocks() -> st.SearchStrategy[str]:
    """Templates that combine operations: in loops, in macros, one after the other."""
    one = st.sampled_from(OPERATIONS).map(lambda text: text.replace("LOOP", "30"))
    times = st.sampled_from((3, 100, 20_000))

    def combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        loop = st.builds(lambda n, text: f"{{% for i in range({n}) %}}{text}{{% endfor %}}", times, inner)
        over = inner.map(lambda text: f"{{% for x in x %}}{text}{{% endfor %}}")
        captured = inner.map(lambda text: f"{{% set x %}}{text}{{% endset %}}{{{{ x | upper }}}}")
        called = inner.map(lambda text: f"{{% macro m() %}}{text}{{% endmacro %}}{{{{ m() }}}}{{{{ m() ~ m() }}}}")
        return st.one_of(loop, over, captured, called, st.builds("".join, st.lists(inner, max_size=3)))

    return st.recursive(one, combined, max_leaves=6)


@settings(max_examples=150, deadline=None)
@given(
    text=blocks(),
    x=st.sampled_from(sorted(VALUES)),
    y=st.sampled_from(sorted(VALUES)),
)
@example(text="{% set z = x == y %}" * 9, x="numbers 3000", y="numbers 3000")
def test_no_template_does_more_than_it_is_charged(text: str, x: str, y: str) -> None:
    environment().from_string(text)
    with counted_calls() as calls:
        units, out = rendered(text, {"x": VALUES[x], "y": VALUES[y]})
    # The last charge is of what was not done any more; compiling is bounded by the size of the template. The text of an
    # object of 3,000 fields takes 1.3 calls for each unit.
    assert calls() < 1.5 * units + 40_000 + 300 * len(text)
    assert out is None or (units <= MAX_WORK and len(out) <= MAX_TEXT_CHARACTERS)


LOOK_AT_ONE = {"first", "last", "length", "count", "default", "d", "abs", "round", "batch", "slice", "sum"}
"""Filters that do not go through a text."""


TAKE_ALL = ("center", "format", "indent", "truncate")
"""Those that copy a text of any length."""


@pytest.mark.parametrize("name", sorted(allowed_filters().keys() - LOOK_AT_ONE))
def test_a_filter_is_charged_for_what_it_takes(name: str) -> None:
    uses = {"replace": "('a', 'b')", "map": "('upper')", "format": "(1)", "dictsort": ""}
    use = name + uses.get(name, "")
    template = f"{{% set z = x | {use} %}}"
    kind = (lambda n: {str(i): i for i in range(n)}) if name in ("items", "dictsort") else (lambda n: "a " * n)
    small, large = (rendered(template, {"x": kind(n)})[0] for n in (1_000, 20_000))
    assert large - small > 19_000 * 2 / 128
    assert rendered(template, {"x": kind(2_000_000)})[1] is None or name in TAKE_ALL


@pytest.mark.parametrize(
    "template",
    [
        "{{ ('a' * 1000000) | wordwrap(1) | length }}",
        "{{ ('a' * 3000000) | urlize | length }}",
        "{{ ('<' * 5000000) | striptags | length }}",
        "{{ x | pprint }}",
        "{{ x | random }}",
        "{{ x | attr('a') }}",
        "{{ dict(a=1) | xmlattr }}",
        "{% include 'x' %}",
        "{% autoescape true %}{% endautoescape %}",
        "{% for i in [x] recursive %}{{ loop(x) }}{% endfor %}",
        "{% for loop in x %}{% endfor %}",
        "{{ x is callable }}",
        "{{ x | charged_body }}",
        "{{ " + "1" * 4_000 + " }}",
        "{{ " + "a." * MAX_LEVELS + "b }}",
        "{{ " + " + ".join("a" * MAX_LEVELS * 2) + " }}",
        "{{ " + "(" * 30 + "a" + ")" * 30 + " }}",
        "{{ " + "[" * 300 + "]" * 300 + " }}",
        "{{ " + "not " * 2_000 + "a }}",
        "{{ " + "-" * 1_000 + "a }}",
        "{% for i in a %}" * (MAX_LOOPS_WITHIN + 1) + "{% endfor %}" * (MAX_LOOPS_WITHIN + 1),
        "{% if a %}" * 300 + "{% endif %}" * 300,
        "{{ a }}" * MAX_TOKENS,
        "a" * (MAX_SOURCE_CHARACTERS + 1) + "{{ a }}",
    ],
    ids=lambda text: text[:30],
)
def test_what_no_template_may_hold_is_refused_when_it_is_read(template: str) -> None:
    with pytest.raises(NoTemplate):
        parsed(template, is_condition=False)
    with pytest.raises(NoTemplate):
        check_template([{"args": template}])


@pytest.mark.parametrize(
    "template",
    [
        "{{ lipsum(n=30000) }}",
        "{{ x.to_bytes(1000000000, 'big') }}",
        "{{ 1 | round(100000000, 'ceil') }}",
        "{{ x | round(-100000000) }}",
        "{{ [1] | batch(1000000000, 'x') }}",
        "{{ [1] | slice(1000000000) }}",
        "{{ [1] | tojson(indent=1000000000) }}",
        "{{ ('\t' * 9000).expandtabs(100000) }}",
        "{{ '{0[}]:>999999999}'.format({'}': 1}) }}",
        "{{ '{:{}}'.format(1, 999999999) }}",
        "{{ '%(a(b))999999999d' % {'a(b)': 1} }}",
        "{{ ('{0:>999}' * 99999).format(1) }}",
        "{{ ('a' * 900000).rfind('b' + 'a' * 450000) }}",
        "{{ ('a' * 900000).strip('b' * 900000 + 'a') }}",
        "{{ [[1] * 900] * 900 | sum(start=[]) }}",
        "{{ namespace(a=1) }}",
        "{{ [cycler(1)] }}",
        "{{ x.upper }}",
        "{{ now.strftime('%c' * 90000) }}",
        "{% set ns = namespace(x=1) %}{% for i in range(9000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
        "{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}",
        "{% set k = ((1,) * 9000) %}{% for i in range(9000) %}{% set z = {k: 1} %}{% endfor %}",
        "{% set k = ((1,) * 9000) %}{% for i in range(9000) %}{% set z = {}[k] is defined %}{% endfor %}",
        "{{ f(a=1, a=2) }}",
    ],
    ids=lambda text: text[:40],
)
def test_what_would_be_too_much_fails_at_once(template: str) -> None:
    with counted_calls() as calls, pytest.raises(Exception) as failed:
        filled(template, {"x": 5, "now": NOW, "f": "f"})
    assert isinstance(failed.value.__cause__, (*FAILS, SyntaxError))
    assert calls() < 1_000_000


@pytest.mark.parametrize(
    "template", ["{{ dict(pairs) | length }}", "{{ range(0, step * 3400, step) | unique | list | length }}"]
)
def test_numbers_with_one_hash_are_charged_for_each_other(template: str) -> None:
    step = sys.hash_info.modulus
    pairs = [[number * step, 1] for number in range(9_000)]
    with pytest.raises(ExpressionError) as failed:
        filled(template, {"pairs": pairs, "step": step})
    assert type(failed.value.__cause__) is OverflowError


def test_markup_gives_nobody_other_methods() -> None:
    assert filled("{{ (x | tojson) + '<b>' }}", {"x": "a"}) == '"a"<b>'
    assert filled("{{ (x | e) ~ '<b>' }}", {"x": "<a>"}) == "&lt;a&gt;<b>"


def test_a_decision_has_one_allowance_for_all_its_templates() -> None:
    dear = "{% for i in range(20000) %}{% endfor %}"
    alone, _ = rendered(dear, {})
    assert MAX_WORK / 4 < alone < MAX_WORK

    def evaluated() -> list[str]:
        found: list[str] = []
        with one_decision(), pytest.raises(ExpressionError) as refused:
            found.extend(filled(dear, {}) for _ in repeat(None))
        assert isinstance(refused.value.__cause__, OverflowError)
        return found

    first = evaluated()
    assert 0 < len(first) <= MAX_DECISION_WORK // alone
    # Whether the process has the template compiled already makes no difference.
    assert evaluated() == first
    assert filled(dear, {}) == ""


def test_a_decision_does_not_pay_for_what_a_rendering_was_refused() -> None:
    with one_decision() as work:
        with pytest.raises(ExpressionError) as refused:
            filled("{{ ([1] * 15000000) | length }}", {})
        assert isinstance(refused.value.__cause__, OverflowError)
        assert work.spent < MAX_WORK
        assert filled("{{ x }}", {"x": 1}) == 1


def test_a_plan_with_more_templates_than_a_decision_may_read_is_refused() -> None:
    many = [f"{{{{ a{i} }}}}" for i in range(MAX_DECISION_WORK // 900 + 1)]
    with one_decision(), pytest.raises(ValueError):
        check_template(many)

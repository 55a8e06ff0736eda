"""Each operation that templates may use, and values that are worst for it."""

from collections.abc import Iterator
from typing import Any

from cadre.spec.templates.template_filters import allowed_filters, allowed_tests

PATTERNS = (
    "a",
    " ",
    "a ",
    "\n",
    "(",
    "<",
    "<a",
    "&",
    "-",
    "a-",
    "\x85",
    "é",
    "İ",
    "\U0001f600",
    "\t",
    "%",
    "{",
    "1",
    "ab.",
    "'",
)
"""Texts are made of one of them, again and again."""

FILTERS = {
    "batch": ("batch(2)", "batch(99999, 'x')", "batch(1)"),
    "center": ("center(99999)",),
    "default": ("default(y)",),
    "format": ("format(y)", "format(y, y, y)"),
    "groupby": ("groupby('a')",),
    "indent": ("indent(1)", "indent(999)", "indent(y)"),
    "join": ("join(y)", "join", "join(',', attribute='a.a.a')"),
    "map": ("map('upper')", "map(attribute='a.b.c')", "map('string')"),
    "max": ("max", "max(attribute='a')"),
    "replace": ("replace('a', 'b')", "replace(y, y)", "replace('a', y)", "replace('', 'b')"),
    "round": ("round", "round(300, 'ceil')", "round(-300)"),
    "reject": ("reject('eq', y)", "reject('in', y)"),
    "rejectattr": ("rejectattr('a')",),
    "select": ("select('eq', x)", "select('string')", "select('in', x)"),
    "selectattr": ("selectattr('a', 'eq', y)",),
    "slice": ("slice(2)", "slice(99999)"),
    "sort": ("sort", "sort(attribute='a')", "sort(case_sensitive=true)"),
    "sum": ("sum", "sum(start=[])", "sum(attribute='a')"),
    "tojson": ("tojson", "tojson(indent=100)"),
    "trim": ("trim", "trim(y)"),
    "truncate": ("truncate(100)", "truncate(999999, true, y)"),
}
"""The uses of filters with arguments; the others stand alone."""

TESTS = {
    "divisibleby": "divisibleby(7)",
    **{
        name: f"{name}(y)"
        for name in ("eq", "ne", "lt", "le", "gt", "ge", "in", "sameas", "equalto", "greaterthan", "lessthan")
    },
}

EXPRESSIONS = (
    *(
        "x + y",
        "x ~ y",
        "x * 1000",
        "x % y",
        "x - y",
        "x // 3",
        "x ** 2",
        "-x",
        "x == y",
        "x < y",
        "x in y",
        "y in x",
    ),
    *(
        "x[1:]",
        "x[::-1]",
        "x[0]",
        "[x, x, x]",
        "{'a': x}",
        "{x: 1}",
        "[x] * 999",
        "(x, x) == (y, y)",
        "x == x < y",
    ),
    *(
        "x.upper()",
        "x.title()",
        "x.swapcase()",
        "x.split()",
        "x.split(y)",
        "x.split('a')",
        "x.rsplit(y)",
        "x.rsplit(y, 1)",
    ),
    *(
        "x.splitlines()",
        "x.strip(y)",
        "x.find(y)",
        "x.rfind(y)",
        "x.count(y)",
        "x.count('a')",
        "x.partition(y)",
    ),
    *("x.rpartition(y)", "x.replace(y, 'b')", "x.replace('a', y)", "x.expandtabs(99)", "x.expandtabs(99999)"),
    *(
        "x.join(x)",
        "y.join(x)",
        "x.format(y, y)",
        "x.center(99999)",
        "x.zfill(99999)",
        "x.casefold()",
        "x.isalnum()",
    ),
    *("x.startswith(y)", "x.index(y)", "x.get(y)", "x.items() | list", "x.values() | sum", "x.keys() | sort"),
    *(
        "'%999d' * 30 % ((y,) * 30)",
        "'{:999}' * 30",
        "('{:>999}' * 30).format(*(y,) * 30)",
        "'%.999f' % 1e300",
        "dict(a=x)",
    ),
    *(
        "x | map('length') | sum",
        "x | map('upper') | join(y)",
        "x | list | sort | unique | list",
        "'%s' % x",
        "'%r' % (x,)",
    ),
    *(
        "namespace(a=x)",
        "range(99999) | list",
        "range(99999) | sum",
        "cycler(x, y)",
        "joiner(x)",
        "range(99999) | map('string') | join",
    ),
    *(
        "now.strftime(x)",
        "now.strftime('%c' * 30)",
        "now.isoformat()",
        "now - now",
        "x is mapping and x",
        "n ** 60 * n",
        "n // 3 - n",
    ),
    *(
        "(n ** 60) | string",
        "'%d' % n ** 60",
        "n ** 60 % 12345678901",
        "(x, y) in [(x, y)] * 99",
        "x if y else x",
        "not x",
    ),
)

STATEMENTS = (
    "{%% for i in x %%}{%% endfor %%}",
    "{%% for i in x %%}{{ i }}{%% endfor %%}",
    "{%% for i in x if i == y %%}{{ loop.index }}{%% endfor %%}",
    "{%% for i in x %%}{{ loop.previtem is defined and loop.last }}{%% endfor %%}",
    "{%% for i in x %%}{{ loop.changed(i) }}{{ loop.cycle(x, y) }}{%% endfor %%}",
    "{%% for a, b in x.items() %%}{{ a }}{%% endfor %%}",
    "{%% set s %%}{{ x }}{{ x }}{%% endset %%}{{ s }}",
    "{%% filter upper %%}{{ x }}{%% endfilter %%}",
    "{%% macro f(a) %%}{{ a }}{%% endmacro %%}{{ f(x) }}{{ f(y) }}",
    "{%% macro f(k) %%}{%% if k %%}{{ f(k - 1) }}{{ f(k - 1) }}{%% endif %%}{%% endmacro %%}{{ f(14) }}",
    "{%% macro f() %%}{{ caller() }}{%% endmacro %%}{%% call f() %%}{{ x }}{%% endcall %%}",
    "{%% with z = x %%}{{ z }}{%% endwith %%}",
    "{%% set ns = namespace(x=x) %%}{%% for i in range(LOOP) %%}{%% set ns.x = ns.x ~ x %%}{%% endfor %%}",
    "{%% set ns = namespace(x=[]) %%}{%% for i in range(LOOP) %%}{%% set ns.x = ns.x + [i] %%}{%% endfor %%}",
    "{%% set ns = namespace(x=1) %%}{%% for i in range(LOOP) %%}{%% set ns.x = [ns.x] %%}{%% endfor %%}",
    "{%% set ns = namespace(x=1) %%}{%% for i in range(LOOP) %%}{%% set ns.x = ns.x * n - 1 %%}{%% endfor %%}",
    "{%% set ns = namespace(x={}) %%}{%% for i in range(LOOP) %%}{%% set ns.x = dict(ns.x, a=ns.x) %%}{%% endfor %%}",
    "{%% for i in range(LOOP) %%}{%% for j in range(LOOP) %%}{{ i * j }}{%% endfor %%}{%% endfor %%}",
    "{%% for i in range(LOOP) %%}" + "y" * 5_000 + "{%% endfor %%}",
    "{%% for i in range(LOOP) %%}{%% if i and x and y or not n %%}{%% set z = i %%}{%% endif %%}{%% endfor %%}",
)


def operations() -> Iterator[str]:
    """Each expression and statement that a template may be made of."""
    for name in allowed_filters():
        for use in FILTERS.get(name, (name,)):
            yield f"{{{{ x | {use} }}}}"
            yield f"{{% set z = x | {use} %}}"
    for name in allowed_tests():
        if name.isalpha():
            yield f"{{% set z = x is {TESTS.get(name, name)} %}}"
    for one in EXPRESSIONS:
        yield f"{{% set z = {one} %}}"
    yield from (one.replace("%%", "%") for one in STATEMENTS)


def values(size: int) -> Iterator[tuple[str, Any]]:
    """Values of that size, with what they are."""
    for pattern in PATTERNS:
        yield f"{pattern!r} * {size}", (pattern * size)[:size]
    yield f"b + a * {size}", "b" + "a" * size
    yield f"numbers {size}", [*range(size)]
    yield f"backwards {size}", [*range(size, 0, -1)]
    yield f"texts {size}", [f"text {i}" for i in range(size)]
    yield f"equal texts {size}", ["a" * 400] * (size // 100)
    yield f"objects {size}", [{"a": {"a": i, "b": {"c": "d"}}} for i in range(size // 10)]
    yield f"an object {size}", {f"key {i}": i for i in range(size)}
    yield f"lists {size}", [["a", i] for i in range(size // 2)]
    yield f"floats {size}", [i / 7 for i in range(size)]
    yield f"a number {size}", 3 ** min(size, 8_000)
    yield f"false {size}", [0] * size

"""Tests of what a model may rely on when it writes a block of code."""

import re
from typing import Any

import pytest

from cadre_sandbox.interpreters.contract import (
    BlockLimits,
    BlockRequest,
    CallResult,
    Exchange,
    Finished,
    Function,
    SandboxError,
    Yielded,
)
from cadre_sandbox.interpreters.session import InterpreterSession
from cadre_sandbox.wire.values import BinaryValue
from sandbox.worlds import failed, finished, run, yielded

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_last_expression_is_the_output_and_prints_are_logs(session: InterpreterSession) -> None:
    outcome = await finished(session, "print('a', 1, sep='-', end='!')\nx = {'n': [1, (2, 3)]}\nx")
    assert (outcome.output, outcome.text, outcome.logs) == ({"n": [1, [2, 3]]}, "{'n': [1, (2, 3)]}", "a-1!")
    assert not outcome.is_final_answer


async def test_a_statement_at_the_end_leaves_no_output(session: InterpreterSession) -> None:
    outcome = await finished(session, "x = 3")
    assert (outcome.output, outcome.text) == (None, "")


async def test_variables_functions_classes_and_imports_last(session: InterpreterSession) -> None:
    await finished(session, "import math as m\nclass A:\n    k = 2\ndef f(n):\n    return n * A.k + base\nbase = 1")
    await finished(session, "base = 100\nA.k = 3")
    assert (await finished(session, "f(m.floor(2.5))")).output == 106


async def test_python_is_whole(session: InterpreterSession) -> None:
    code = """
from dataclasses import dataclass
import asyncio, contextlib, enum
@dataclass
class P:
    x: int = 1
    @property
    def double(self): return self.x * 2
    @classmethod
    def of(cls, v): return cls(v)
class Color(enum.Enum):
    RED = 1
def counter():
    n = 0
    def step():
        nonlocal n
        n += 1
        return n
    return step
c = counter(); c()
async def later(v):
    await asyncio.sleep(0)
    return v
match {"k": [1, 2, 3]}:
    case {"k": [first, *rest]}: pass
total = 0
for i in range(3):
    try:
        if i == 1: continue
        total += i
    finally:
        total += 10
else:
    total += 100
[(y := P.of(4)).double, c(), Color.RED.name, asyncio.run(later(5)), first, rest, total, f"{1.5!r:>5}", [*range(2), 9]]
"""
    outcome = await finished(session, code, authorized_imports=["dataclasses", "asyncio", "contextlib", "enum"])
    assert outcome.output == [8, 2, "RED", 5, 1, [2, 3], 132, "  1.5", [0, 1, 9]]


@pytest.mark.parametrize(
    "code",
    [
        "final_answer(42)",
        "def f():\n    final_answer(42)\nf()",
        "try:\n    final_answer(42)\nexcept Exception:\n    final_answer(0)",
        "try:\n    final_answer(42)\nexcept:\n    print('caught')",
        "try:\n    final_answer(42)\nexcept BaseException:\n    print('caught')",
        "import contextlib\nwith contextlib.suppress(BaseException):\n    final_answer(42)\nfinal_answer(0)",
        "list(map(final_answer, [42]))",
        "final_answer = 42\nfinal_answer(final_answer)",
        "def f():\n    global final_answer\n    final_answer = 42\nf()\nfinal_answer(final_answer)",
        "match 42:\n    case final_answer: pass\nfinal_answer(final_answer)",
        "def f(final_answer): return int(final_answer)\nfinal_answer(f(final_answer='42'))",
        "final_answer = 42\nf = lambda final_answer=final_answer: final_answer\nfinal_answer(f())",
        "class A:\n    def __init__(self): final_answer(answer=42)\nA()\nprint('never')",
    ],
)
async def test_a_final_answer_ends_the_block_from_anywhere(session: InterpreterSession, code: str) -> None:
    outcome = await finished(session, f"{code}", authorized_imports=["contextlib"])
    assert (outcome.output, outcome.is_final_answer, outcome.logs) == (42, True, "")


async def test_a_variable_of_that_name_lasts(session: InterpreterSession) -> None:
    await finished(session, "final_answer = 42")
    assert (await finished(session, "final_answer(final_answer + 1)")).output == 43
    code = "def f(final_answer): return final_answer\nfinal_answer([f(final_answer=1), final_answer])"
    assert (await finished(session, code, variables={"final_answer": 44})).output == [1, 44]


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("final_answer('\U0001f600' * 800_000)", "\U0001f600" * 800_000),
        ("final_answer('\\0' * 1_000_000)", "\0" * 10**6),
    ],
    ids=["of four bytes", "of six"],
)
async def test_an_answer_may_be_of_any_characters(session: InterpreterSession, code: str, output: str) -> None:
    assert (await finished(session, code)).output == output


async def test_a_final_answer_swallowed_in_an_endless_loop_is_kept(session: InterpreterSession) -> None:
    code = "import contextlib\nwhile True:\n    with contextlib.suppress(BaseException):\n        final_answer(7)"
    outcome = await finished(session, code, authorized_imports=["*"], limits=BlockLimits(seconds=0.5))
    assert (outcome.output, outcome.is_final_answer) == (7, True)


async def test_no_final_answer_where_it_is_not_allowed(session: InterpreterSession) -> None:
    outcome = await failed(session, "final_answer(1)", final_answer=False)
    assert outcome.error == "NameError"


async def test_an_error_names_its_line_and_keeps_prints_and_variables(session: InterpreterSession) -> None:
    code = "done = []\nfor i in range(3):\n    print(i)\n    done.append(1 / (1 - i))\nprint('never')"
    outcome = await failed(session, code)
    assert (outcome.error, outcome.line, outcome.source) == (
        "ZeroDivisionError",
        4,
        "done.append(1 / (1 - i))",
    )
    assert (outcome.logs, outcome.message) == ("0\n1\n", "division by zero")
    assert (await finished(session, "done")).output == [1.0]


async def test_an_error_in_an_older_function_names_the_line_that_called_it(
    session: InterpreterSession,
) -> None:
    await finished(session, "def f(x):\n\n\n\n    return x['a']")
    outcome = await failed(session, "y = 1\nf({})")
    assert (outcome.error, outcome.line, outcome.source) == ("KeyError", 2, "f({})")
    assert "'a'" in outcome.message


async def test_a_syntax_error_shows_the_place(session: InterpreterSession) -> None:
    outcome = await failed(session, "x = 1\nif x = 2:\n    pass")
    assert (outcome.error, outcome.line, outcome.source) == ("SyntaxError", 2, "if x = 2:")
    assert "^" in outcome.message


async def test_prints_are_cut_in_the_middle(session: InterpreterSession) -> None:
    code = "for i in range(20000): print(i)"
    outcome = await finished(session, code, limits=BlockLimits(print_chars=1000))
    assert outcome.logs.startswith("0\n1\n2\n")
    assert outcome.logs.endswith("19998\n19999\n")
    cut = re.fullmatch(r"(.*)\n… \[(\d+) [^\]]*\] …\n(.*)", outcome.logs, re.DOTALL)
    assert cut is not None
    assert len(cut[1]) + int(cut[2]) + len(cut[3]) == sum(len(f"{i}\n") for i in range(20000))
    assert len(outcome.logs) < 1100


async def test_a_print_at_the_limit_is_whole(session: InterpreterSession) -> None:
    outcome = await finished(session, "print('a' * 99)", limits=BlockLimits(print_chars=100))
    assert outcome.logs == "a" * 99 + "\n"


async def test_output_is_cut_as_text_only(session: InterpreterSession) -> None:
    outcome = await finished(session, "'ab' * 5000", limits=BlockLimits(output_chars=100))
    assert outcome.output == "ab" * 5000
    assert len(outcome.text) < 200


async def test_output_that_cannot_travel_is_its_text(session: InterpreterSession) -> None:
    assert (await finished(session, "object")).output == "<class 'object'>"
    assert (await finished(session, "'\\ud800'")).output == "?"
    assert (await finished(session, "b'ab'")).output == BinaryValue("bytes", b"ab")


async def test_variables_are_given_by_name(session: InterpreterSession) -> None:
    given = {
        "n": 3,
        "rows": [{"a": 1}],
        "raw": BinaryValue("bytes", b"\x00\xff"),
        "odd": {"$given": 1, "$dict": {}},
    }
    code = "[n, rows[0]['a'], list(raw), odd, type(raw).__name__]"
    assert (await finished(session, code, variables=given)).output == [
        3,
        1,
        [0, 255],
        {"$given": 1, "$dict": {}},
        "bytes",
    ]


async def test_a_table_is_rows_or_a_dataframe(session: InterpreterSession) -> None:
    outcome = await finished(session, "len(t)", variables={"t": BinaryValue("table", b"a,b\n1,2\n3,4\n")})
    assert outcome.output == 2


async def test_calls_are_yielded_by_parameter_name_and_resumed(session: InterpreterSession) -> None:
    code = "a = search('x', 3)\nb = visit(url='u', accept='json')\n[a, b['k']]"
    first = await yielded(session, code)
    assert [(call.name, call.arguments) for call in first.calls] == [("search", {"query": "x", "limit": 3})]
    second = await session.resume([CallResult(value="found")])
    assert getattr(second, "calls", None)
    assert second.calls[0].arguments == {"url": "u", "accept": "json"}  # type: ignore[union-attr]
    third = await session.resume([CallResult(value={"k": [1]})])
    assert third.output == ["found", [1]]  # type: ignore[union-attr]


async def test_gather_yields_several_calls_at_once(session: InterpreterSession) -> None:
    code = "gather(*[search.later(q) for q in 'ab'], visit.later('u'))"
    outcome = await yielded(session, code)
    assert [call.arguments for call in outcome.calls] == [{"query": "a"}, {"query": "b"}, {"url": "u"}]
    done = await session.resume([CallResult(value=1), CallResult(value=2), CallResult(value={})])
    assert done.output == [1, 2, {}]  # type: ignore[union-attr]


async def test_one_failed_call_of_several_loses_no_result(session: InterpreterSession) -> None:
    await yielded(session, "r = gather(search.later('a'), search.later('b'))")
    outcome = await session.resume([CallResult(value="fine"), CallResult(error="no such page")])
    assert outcome.error == "GatherError"  # type: ignore[union-attr]
    assert "no such page" in outcome.message  # type: ignore[union-attr]
    assert (await finished(session, "[str(one) for one in gathered]")).output == ["fine", "no such page"]


async def test_a_result_may_hold_what_json_lacks(session: InterpreterSession) -> None:
    await yielded(session, "r = search('a')\n[len(r['blob']), r['nan'] != r['nan']]")
    outcome = await session.resume([CallResult(value={"blob": BinaryValue("bytes", b"123"), "nan": float("nan")})])
    assert outcome.output == [3, True]  # type: ignore[union-attr]


async def test_a_failed_call_can_be_caught(session: InterpreterSession) -> None:
    await yielded(session, "try:\n    search('a')\nexcept CallError as error:\n    m = str(error)\nm")
    assert (await session.resume([CallResult(error="boom")])).output == "boom"  # type: ignore[union-attr]
    await yielded(session, "search('b')")
    outcome = await session.resume([CallResult(error="boom")])
    assert (outcome.error, outcome.message) == ("CallError", "boom")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("code", "error", "says"),
    [
        ("search()", "TypeError", "missing a required argument: 'query'"),
        ("search('a', color='red')", "TypeError", "color"),
        ("search(search)", "NotAValue", "the argument query of search is a Tool"),
        ("final_answer([object()])", "NotAValue", "the answer[0] is a object"),
        ("gather(lambda: search('a'))", "TypeError", "search.later"),
    ],
)  # fmt: skip
async def test_wrong_calls_are_explained(session: InterpreterSession, code: str, error: str, says: str) -> None:
    outcome = await failed(session, code, authorized_imports=["*"])
    assert outcome.error == error
    assert says in outcome.message


async def test_dates_sets_and_dataclasses_become_arguments(session: InterpreterSession) -> None:
    code = "import datetime\nvisit('u', a=datetime.date(2026, 1, 2), b={1}, c=(1, 2), d=b'x')"
    (call,) = (await yielded(session, code)).calls
    assert call.arguments == {
        "url": "u",
        "a": "2026-01-02",
        "b": [1],
        "c": [1, 2],
        "d": BinaryValue("bytes", b"x"),
    }


async def test_functions_have_help(session: InterpreterSession) -> None:
    code = "import inspect\n[search.__doc__, str(inspect.signature(search))]"
    outcome = await finished(session, code, authorized_imports=["inspect"])
    assert outcome.output == ["Searches.", "(query: 'str', limit: 'int' = …) -> 'str'"]


async def test_a_tool_may_be_kept_and_is_no_name_to_assign(session: InterpreterSession) -> None:
    outcome = await failed(session, "search = 3")
    assert (outcome.error, outcome.line) == ("NotAllowed", 1)
    await finished(session, "find = search")
    (call,) = (await yielded(session, "find('x')")).calls
    assert call.name == "search"


SCRIPT = """
import sys
from json import dumps

def main(name, times):
    print(dumps({name: times * 2}))
    if times > 3:
        sys.exit("too many")

if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
"""


async def test_code_that_has_a_skill_runs_its_script_under_its_own_rules(session: InterpreterSession) -> None:
    async def read_and_run(code: str, *imports: str, script: str = SCRIPT) -> Any:
        offered = (Function(name="skill_sums", signature="(path: str) -> str"),)
        asked = BlockRequest(code=code, functions=offered, authorized_imports=list(imports))
        outcome = await session.execute(asked)
        assert isinstance(outcome, Yielded)
        assert outcome.calls[0].arguments == {"path": "scripts/sum.py"}
        return await session.resume([CallResult(value=script)])

    once = 'run_script(skill_sums(path="scripts/sum.py"), "a", {})'
    told = await read_and_run(once.format(2) + "\nname = 1\nname", "sys", "json")
    assert (told.logs, told.output) == ('{"a": 4}\n', 1)
    ended = await read_and_run(once.format(4), "sys", "json")
    assert (ended.error, ended.logs) == ("ScriptFailed", '{"a": 8}\n')
    assert "too many" in ended.message
    refused = await read_and_run(once.format(2), "json")
    assert refused.error == "NotAllowed"
    assert "sys" in refused.message
    opened = await read_and_run(once.format(2), script="open('/etc/passwd')")
    assert opened.error == "NotAllowed"
    without = await failed(session, "run_script('1')")
    assert without.error == "NameError", "who has no skill has no such function"


async def test_misuse_by_the_outside_is_an_error_there(session: InterpreterSession) -> None:
    bad = Function(name="bad", signature="(a: ")
    with pytest.raises(ValueError, match="signature of bad"):
        await session.execute(BlockRequest(code="1", functions=[bad]))
    await yielded(session, "search('a')")
    with pytest.raises(SandboxError, match="1 results, not 2"):
        await session.resume([CallResult(), CallResult()])
    with pytest.raises(SandboxError, match="waits for results"):
        await run(session, "1")


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("gather(*[search.later('x' * 900_000) for _ in range(10)])", "together are 9.0 MB, at most 7 MB"),
        ("gather(*[search.later('x') for _ in range(1001)])", "1001"),
    ],
)
async def test_too_much_in_one_gather_is_said(session: InterpreterSession, code: str, says: str) -> None:
    code = f"try:\n    {code}\nexcept ValueError as e:\n    search(str(e))"
    (call,) = (await yielded(session, code)).calls
    assert says in str(call.arguments["query"])
    assert isinstance(await session.resume([CallResult()]), Finished)
    # A block that is run again is sent the same.
    await finished(session, code, recorded=[Exchange([call], [CallResult()])])


async def test_names_that_statements_bind_are_the_codes_own(session: InterpreterSession) -> None:
    code = "from re import compile\nmatch 3:\n    case input: pass\n[compile('a').pattern, input]"
    assert (await finished(session, code)).output == ["a", 3]

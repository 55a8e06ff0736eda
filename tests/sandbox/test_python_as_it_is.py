"""Idioms of Python that a sandbox easily breaks: they mean in a block what they mean in a file."""

import pytest

from cadre_sandbox.interpreters.contract import (
    BlockLimits,
    CallResult,
    Exchange,
    Finished,
    FunctionCall,
    Yielded,
)
from cadre_sandbox.interpreters.pool import Sandbox
from cadre_sandbox.interpreters.session import InterpreterSession
from sandbox.worlds import failed, finished, run, yielded

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import datetime\ndatetime.datetime.strptime('2026-01-02', '%Y-%m-%d').day", 2),
        ("import time\ntime.strptime('2026', '%Y').tm_year", 2026),
        ("import datetime\ndatetime.datetime(2026, 1, 2).strftime('%d')", "02"),
    ],
)
async def test_functions_written_in_c_import_what_they_need(
    session: InterpreterSession, code: str, expected: object
) -> None:
    imports = ["datetime", "time"]
    assert (await finished(session, code, authorized_imports=imports)).output == expected
    refused = await failed(
        session, "try:\n    import os\nexcept ImportError as e:\n    raise", authorized_imports=imports
    )
    assert "import of os is not authorized" in refused.message


async def test_annotations_are_objects_unless_the_block_says_otherwise(session: InterpreterSession) -> None:
    code = """
import dataclasses, functools
@dataclasses.dataclass
class P:
    x: int = 1
@functools.singledispatch
def kind(x): return "other"
@kind.register
def _(x: int): return "int"
kind(3), dataclasses.fields(P)[0].type is int"""
    imports = ["dataclasses", "functools"]
    assert (await finished(session, code, authorized_imports=imports)).output == ["int", True]
    code = "from __future__ import annotations\ndef f(x: Undefined): pass\nf.__annotations__"
    assert (await finished(session, code)).output == {"x": "Undefined"}
    assert (await finished(session, "def f(x: int): pass\nf.__annotations__['x'] is int")).output is True
    late = await failed(session, "x = 1\nfrom __future__ import annotations")
    assert late.error == "SyntaxError"


async def test_a_byte_order_mark_is_no_error(session: InterpreterSession) -> None:
    assert (await finished(session, "\ufeffx = 2\nx")).output == 2


async def test_notes_of_an_error_are_shown(session: InterpreterSession) -> None:
    code = "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    e.add_note('row 7')\n    raise"
    assert (await failed(session, code)).message == "division by zero\nrow 7"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("print = 3", "print is a function"),
        ("def f():\n    global print\n    print = 3", "print is a function"),
        ("for search in [1]: pass", "search is a function"),
        ("try:\n    1 / 0\nexcept Exception as search:\n    pass", "search is a function"),
        ("import math as search", "search is a function"),
    ],
)
async def test_names_of_functions_are_not_assigned(session: InterpreterSession, code: str, says: str) -> None:
    outcome = await failed(session, code, authorized_imports=["math"])
    assert (outcome.error, says in outcome.message) == ("NotAllowed", True)


async def test_within_a_function_the_names_are_free(session: InterpreterSession) -> None:
    code = "def f():\n    print = 3\n    search = 4\n    return print + search\nf()"
    assert (await finished(session, code)).output == 7


async def test_a_close_key_is_offered(session: InterpreterSession) -> None:
    outcome = await failed(session, "row = {'price': 1, 'name': 'a'}\nrow['prize']")
    assert "'prize'; there is 'price'" in outcome.message
    inner = "def f(row):\n    return row['nam']\nf({'price': 1, 'name': 'a'})"
    assert "'nam'; there is 'name'" in (await failed(session, inner)).message
    assert "'zzz'" in (await failed(session, "{'a': 1}['zzz']")).message
    rows = "rows = [{'price': 1}, {'of': {'owner': 'a'}}]\n"
    assert "'prize'; there is 'price'" in ((await failed(session, rows + "rows[0]['prize']")).message)
    assert (await failed(session, rows + "rows[1]['of']['woner']")).message.endswith("there is 'owner'")
    loop = "data = {'rows': rows}\nfor row in data['rows']:\n    row['pricee']"
    assert (await failed(session, rows + loop)).message.endswith("there is 'price'")
    endless = "ring = []\nring.append(ring)\nring.extend([{'a': n} for n in range(9_999)])\nring[1]['zzz']"
    assert "'zzz'" in (await failed(session, endless)).message


async def test_sources_of_earlier_blocks_are_known(sandbox: Sandbox, session: InterpreterSession) -> None:
    imports = ["inspect"]
    code = "def double(n):\n    return 2 * n  # twice\n"
    before = await finished(session, code, authorized_imports=imports)
    ask = "import inspect\ninspect.getsource(double)"
    assert (await finished(session, ask, authorized_imports=imports)).output == code
    other = await sandbox.open()
    again = await finished(other, ask, authorized_imports=imports, snapshot=before.snapshot)
    assert again.output == code, "in an interpreter that has only the snapshot"
    later = await finished(other, ask, authorized_imports=imports)
    assert later.output == code
    await other.close()


TOOL_ERROR = 'Error executing tool \'search\' with arguments {"query":"a"}: %s'


@pytest.mark.parametrize(
    ("raised", "caught"),
    [
        ("ValueError: no such row: 7", "ValueError"),
        ("KeyError: 'a'", "LookupError"),
        ("OSError: disk", "OSError"),
        ("UnicodeDecodeError: bad", "ValueError"),
        ("StopIteration", "CallError"),
        ("OwnError: 7", "CallError"),
    ],
)
async def test_an_exception_of_a_tool_is_caught_by_its_class(
    sandbox: Sandbox, session: InterpreterSession, raised: str, caught: str
) -> None:
    await yielded(session, f"try:\n    search('a')\nexcept {caught} as error:\n    kept = error\nstr(kept)")
    outcome = await session.resume([CallResult(error=TOOL_ERROR % raised, raised=raised.partition(":")[0])])
    assert isinstance(outcome, Finished)
    assert outcome.output == TOOL_ERROR % raised
    other = await sandbox.open()
    again = await finished(other, f"isinstance(kept, {caught}), str(kept)", snapshot=outcome.snapshot)
    assert again.output == [True, TOOL_ERROR % raised]
    await other.close()


async def test_an_uncaught_one_is_named_as_any_failed_call(session: InterpreterSession) -> None:
    await yielded(session, "search('a')")
    outcome = await session.resume([CallResult(error=TOOL_ERROR % "ValueError: 3")])
    assert outcome.error == "CallError"  # type: ignore[union-attr]


# --- threads


POOLED = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(3) as pool:
    found = list(pool.map(search, ["a", "b", "c"]))
found"""


async def test_tools_are_called_from_threads(session: InterpreterSession) -> None:
    imports = ["concurrent.futures"]
    outcome = await run(session, POOLED, authorized_imports=imports)
    while not isinstance(outcome, Finished):
        assert isinstance(outcome, Yielded), outcome
        (call,) = outcome.calls
        outcome = await session.resume([CallResult(value=f"{call.arguments['query']}!")])
    assert outcome.output == ["a!", "b!", "c!"]


async def test_calls_of_threads_are_replayed_in_the_order_of_the_first_time(
    session: InterpreterSession,
) -> None:
    recorded = [
        Exchange([FunctionCall("search", {"query": name})], [CallResult(value=name.upper())], ())
        for name in ("c", "a", "b")
    ]
    outcome = await finished(session, POOLED, authorized_imports=["concurrent.futures"], recorded=recorded)
    assert outcome.output == ["A", "B", "C"]


async def test_a_thread_that_lives_on_calls_within_the_block_that_runs(session: InterpreterSession) -> None:
    code = """
import threading
go, said = threading.Event(), []
def late():
    go.wait()
    said.append(search('a'))
thread = threading.Thread(target=late, daemon=True)
thread.start()"""
    await finished(session, code, authorized_imports=["threading"])
    await yielded(session, "go.set()\nthread.join()\nsaid")
    assert (await session.resume([CallResult(value="b")])).output == ["b"]  # type: ignore[union-attr]


# --- time


async def test_variables_are_saved_after_the_time_is_over(sandbox: Sandbox, session: InterpreterSession) -> None:
    code = "import itertools\ndata = [str(n) for n in range(1_500_000)]\nfor n in itertools.count(): pass"
    limits = BlockLimits(seconds=2, memory_mb=1024)
    outcome = await failed(session, code, authorized_imports=["itertools"], limits=limits)
    assert (outcome.error, outcome.notes) == ("TimeLimit", ())
    other = await sandbox.open()
    assert (await finished(other, "len(data)", snapshot=outcome.snapshot)).output == 1_500_000
    await other.close()


async def test_a_limit_that_was_swallowed_is_told(session: InterpreterSession) -> None:
    code = """
import time
class Slow:
    def __del__(self):
        until = time.monotonic() + 0.7
        while time.monotonic() < until: pass
x = Slow()
del x
7"""
    outcome = await failed(session, code, authorized_imports=["time"], limits=BlockLimits(seconds=0.5))
    assert outcome.error == "TimeLimit"

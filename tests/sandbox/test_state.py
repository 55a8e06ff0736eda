"""Snapshots and replay: what lives on when the interpreter does not."""

import asyncio
import os
import re
import signal

import pytest

from cadre_sandbox.interpreters.contract import (
    BlockLimits,
    CallResult,
    Exchange,
    Failed,
    Finished,
    FunctionCall,
    InterpreterLost,
    Outcome,
    Yielded,
)
from cadre_sandbox.interpreters.pool import Sandbox
from cadre_sandbox.interpreters.session import InterpreterSession
from harness.patience import patience
from harness.texts import holds
from sandbox.worlds import failed, finished, run, yielded

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def finished_anew(sandbox: Sandbox, outcome: Outcome, code: str, **more: object) -> Finished:
    again = await restored(sandbox, outcome, code, **more)
    assert isinstance(again, Finished), again
    return again


async def restored(sandbox: Sandbox, outcome: Outcome, code: str, **more: object) -> Outcome:
    """The code after the outcome, in an interpreter that knows its snapshot only."""
    assert isinstance(outcome, Finished | Failed)
    session = await sandbox.open()
    try:
        return await run(session, code, snapshot=outcome.snapshot, **more)
    finally:
        await session.close()


RICH = """
import math, collections, dataclasses, enum, functools
base = 10
def plus(n): return n + base
def outer():
    n = 0
    def up():
        nonlocal n
        n += 1
        return n
    def look(): return n
    return up, look
up, look = outer()
up()
def fact(n): return 1 if n < 2 else n * fact(n - 1)
class Animal:
    count = 0
    def __init__(self, name): self.name = name
    def __repr__(self): return f"<{self.name}>"
class Dog(Animal):
    def __init__(self, name):
        super().__init__(name)
        type(self).count += 1
@dataclasses.dataclass
class P:
    x: int
class Color(enum.Enum):
    RED = 1
Point = collections.namedtuple("Point", "x y")
rex = Dog("rex")
pack = [rex, rex]
red = Color.RED
points = {Point(1, 2): P(3)}
shared = []
holder = {"a": shared, "b": shared}
class Odd(Exception):
    def __init__(self, a, b): super().__init__(f"{a}{b}"); self.a = a
problem = Odd(1, 2)
double = lambda v: v * 2
part = functools.partial(plus, 5)
find = search
"""


async def test_what_code_defines_lives_on(sandbox: Sandbox, session: InterpreterSession) -> None:
    saved = await finished(session, RICH, authorized_imports=["*"])
    assert saved.notes == ()
    code = """
base = 100
shared.append(1)
[plus(1), up(), look(), fact(5), repr(rex), pack[0] is pack[1], Dog("b").count, isinstance(rex, Dog),
 points[Point(1, 2)].x, red is Color.RED, holder["a"] is holder["b"], holder["a"] is shared, problem.a, str(problem),
 double(4), part(), math.floor(1.5), type(rex) is Dog, issubclass(Dog, Animal)]
"""
    outcome = await finished_anew(sandbox, saved, code)
    assert outcome.output == [
        *(101, 2, 2, 120, "<rex>", True, 2, True, 3, True, True, True, 1, "12", 8, 105, 1, True, True)
    ]
    again = await finished_anew(sandbox, outcome, "[up(), look(), plus(0), Dog('c').count]")
    assert again.output == [3, 3, 100, 3]


MORE = """
import functools, xml.etree.ElementTree, concurrent.futures
@functools.lru_cache(maxsize=None)
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
class Shop:
    @functools.lru_cache
    def price(self, n): return n * 2
shop = Shop()
first = [fib(30), shop.price(4)]
class Late(UnicodeDecodeError):
    def __init__(self, why): super().__init__("utf-8", b"x", 0, 1, why)
try:
    b"\\xff".decode()
except UnicodeDecodeError as e:
    kept = [e, StopIteration(5), OSError(2, "no", "file"), Late("odd")]
def told(): return [str(kept[0]), kept[1].value, kept[2].filename, str(kept[3]), type(kept[3]).__name__]
before = told()
"""


async def test_imports_of_parts_errors_and_cached_functions_live_on(
    sandbox: Sandbox, session: InterpreterSession
) -> None:
    saved = await finished(session, MORE, authorized_imports=["*"])
    assert saved.notes == ()
    code = """
[fib(30), shop.price(4)] == first, fib.cache_info().maxsize, told() == before, before[1:3], before[4],
xml.etree.ElementTree.fromstring('<a/>').tag, concurrent.futures.__name__
"""
    expected = [True, None, True, [5, "file"], "Late", "a", "concurrent.futures"]
    for _ in range(2):
        again = await finished_anew(sandbox, saved, f"({code})", authorized_imports=["*"])
        assert again.output == expected
        saved = again


async def test_a_kept_tool_calls_after_a_restart(sandbox: Sandbox, session: InterpreterSession) -> None:
    saved = await finished(session, "find = search\ndef ask(q): return search(q)")
    outcome = await restored(sandbox, saved, "find('a')")
    assert isinstance(outcome, Yielded)
    assert outcome.calls == (FunctionCall("search", {"query": "a"}),)
    outcome = await restored(sandbox, saved, "ask('b')")
    assert isinstance(outcome, Yielded)


async def test_classes_of_blocks_with_one_seed_stay_apart(sandbox: Sandbox, session: InterpreterSession) -> None:
    await finished(session, "class A:\n    def who(self): return 'A'", seed="s")
    saved = await finished(session, "class B:\n    def who(self): return 'B'", seed="s")
    assert (await finished_anew(sandbox, saved, "[A().who(), B().who()]")).output == ["A", "B"]


async def test_saving_does_not_touch_living_classes(session: InterpreterSession) -> None:
    await finished(session, "class A:\n    seen = []\nalias = A.seen\na = A()")
    await finished(session, "A.seen.append(1)")
    assert (await finished(session, "[alias, A.seen is alias]")).output == [[1], True]


@pytest.mark.parametrize(
    ("code", "name", "why"),
    [
        ("g = (i for i in range(3))", "g", "a generator cannot be saved"),
        ("f = open('x', 'w')", "f", "a TextIOWrapper cannot be saved"),
        ("import threading\nlock = threading.Lock()", "lock", "a lock cannot be saved"),
        (
            "class L:\n    def __init__(self): self.i = []\n    def __getattr__(self, n): return self.i.n\nl = L()",
            "l",
            "too deep",
        ),
        ("class R:\n    def __reduce__(self): return int, ('no',)\nr = R()", "r", "a R cannot be saved"),
        ("big = 'x' * 3_000_000", "big", "3 MB"),
        (
            "class T:\n    def __hash__(self): return one()\ndef one(): return 1\ntags = {T()}",
            "tags",
            "a set cannot be saved",
        ),
        (
            "class D(dict):\n    def __setitem__(self, k, v): super().__setitem__(low(k), v)\n"
            "def low(k): return k.lower()\nd = D()\nd['A'] = 1",
            "d",
            "a D cannot be saved",
        ),
    ],
)
async def test_what_cannot_be_saved_is_told_and_explained_when_missed(
    sandbox: Sandbox, session: InterpreterSession, code: str, name: str, why: str
) -> None:
    free = {
        "authorized_imports": ["*"],
        "authorized_builtins": ["open"],
        "limits": BlockLimits(snapshot_mb=1),
    }
    saved = await finished(session, f"x = 1\n{code}", **free)
    (note,) = saved.notes
    assert re.search(rf"\b{name}\b", note)
    assert why in note
    more = await finished(session, f"{name} is not None", **free)
    assert (more.output, more.notes) == (True, ()), "still there, and not told twice"
    outcome = await restored(sandbox, more, f"print(x)\n{name}")
    assert isinstance(outcome, Failed)
    assert (outcome.error, outcome.logs) == ("NameError", "1\n")
    assert holds(outcome.message, f"'{name}'", why)


async def test_a_snapshot_grows_with_the_data_not_with_the_history(session: InterpreterSession) -> None:
    await finished(session, "x = 0\ndata = list(range(1000))")
    sizes = []
    for _ in range(10):
        sizes.append(len((await finished(session, "x += 1\ntmp = x\nprint(x)")).snapshot or b""))
    assert max(sizes) - min(sizes) < 20


async def test_an_unreadable_snapshot_is_a_clear_failure(sandbox: Sandbox) -> None:
    for snapshot in (b"nonsense", b"cadre-state-1 2.7\n..."):
        session = await sandbox.open()
        outcome = await failed(session, "1", snapshot=snapshot)
        assert (outcome.error, outcome.alive, outcome.snapshot) == ("SnapshotUnreadable", False, snapshot)


LOOP = "found = []\nfor q in ('a', 'b', 'c'):\n    found.append(search(q))\nprint(len(found))\nfound"
FIRST = Exchange([FunctionCall("search", {"query": "a"})], [CallResult(value="A")])
SECOND = Exchange([FunctionCall("search", {"query": "b"})], [CallResult(error="B failed")])


async def test_killed_within_a_block_it_goes_on_elsewhere(sandbox: Sandbox, session: InterpreterSession) -> None:
    before = await finished(session, "seen = 41")
    await yielded(session, "seen += 1\n" + LOOP)
    os.kill(session.pid, signal.SIGKILL)
    assert isinstance(await session.resume([CallResult(value="A")]), InterpreterLost)
    assert not session.alive

    other = await sandbox.open()
    outcome = await yielded(other, "seen += 1\n" + LOOP, snapshot=before.snapshot, recorded=[FIRST])
    assert outcome.calls == (FunctionCall("search", {"query": "b"}),)
    await other.close()

    third = await sandbox.open()
    outcome = await yielded(
        third,
        "seen += 1\n" + LOOP,
        snapshot=before.snapshot,
        recorded=[FIRST, Exchange(outcome.calls, [CallResult(value="B")])],
    )
    done = await third.resume([CallResult(value="C")])
    assert isinstance(done, Finished)
    assert (done.output, done.logs) == (["A", "B", "C"], "3\n")
    assert (await finished(third, "seen")).output == 42
    await third.close()


async def test_killed_between_blocks_it_goes_on_elsewhere(sandbox: Sandbox, session: InterpreterSession) -> None:
    before = await finished(session, "x = [1]")
    os.kill(session.pid, signal.SIGKILL)
    assert isinstance(await run(session, "x.append(2)"), InterpreterLost)
    assert (await finished_anew(sandbox, before, "x.append(2)\nx")).output == [1, 2]


async def test_killed_while_it_computes_it_is_lost_at_once(sandbox: Sandbox) -> None:
    session = await sandbox.open()
    await yielded(session, "search('a')\nwhile True: pass")
    going = asyncio.create_task(session.resume([CallResult()]))
    await asyncio.sleep(0)
    os.kill(session.pid, signal.SIGKILL)
    assert isinstance(await asyncio.wait_for(going, patience()), InterpreterLost)


async def test_a_recorded_error_is_raised_again(session: InterpreterSession) -> None:
    outcome = await failed(session, LOOP, recorded=[FIRST, SECOND])
    assert (outcome.error, outcome.message, outcome.line) == ("CallError", "B failed", 3)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("search('z')", "1 was search(query='a')"),
        ("visit('a')", "is visit(url='a') now"),
        ("gather(search.later('a'), search.later('b'))", "search(query='a') and search(query='b') now"),
        ("1 + 1", "0"),
        ("final_answer(1)", "0"),
        ("try:\n    search('z')\nexcept BaseException:\n    1", "search(query='z') now"),
        ("import contextlib\nwith contextlib.suppress(BaseException): search('z')", "search(query='z') now"),
    ],
)
async def test_a_replay_that_diverges_says_so(session: InterpreterSession, code: str, says: str) -> None:
    outcome = await failed(session, code, recorded=[FIRST], authorized_imports=["*"])
    assert outcome.error == "ReplayDiverged"
    assert says in outcome.message


CHANCE = """
import random, uuid, secrets, time, datetime
def draw():
    kernel = [str(uuid.uuid4()), secrets.token_hex(8), random.SystemRandom().random(), random.Random().random()]
    return [random.random(), *kernel, str(uuid.uuid1()), list({'a', 'b', 'c'})]
a = draw()
t = [time.time(), datetime.datetime.now().isoformat(), str(datetime.date.today()), time.ctime(), time.strftime("%c")]
visit('first', a=a, t=t)
u = [time.time(), datetime.datetime.now(datetime.timezone.utc).isoformat()]
visit('second', a=draw(), u=u)
"""


async def test_clock_and_chance_are_replayed(sandbox: Sandbox, session: InterpreterSession) -> None:
    free = {"authorized_imports": ["*"], "seed": "run-1 step-3"}
    first = await yielded(session, CHANCE, **free)
    second = await session.resume([CallResult()])
    assert isinstance(second, Yielded)
    assert len(first.clock) == 6
    recorded = [
        Exchange(first.calls, [CallResult()], first.clock),
        Exchange(second.calls, [CallResult()], second.clock),
    ]

    other = await sandbox.open()
    done = await run(other, CHANCE, recorded=recorded, **free)
    assert isinstance(done, Finished), done
    await other.close()


async def test_another_seed_is_another_chance(session: InterpreterSession) -> None:
    code = "import random\nrandom.random()"
    drawn = [(await finished(session, code, seed=seed)).output for seed in ("a", "b", "a")]
    assert drawn[0] == drawn[2] != drawn[1]


async def test_waiting_is_free(session: InterpreterSession) -> None:
    limits = BlockLimits(seconds=1.0)
    code = "import threading, time\nn = 0\ndef work():\n    global n\n    while True: n += 1\n"
    code += "threading.Thread(target=work, daemon=True).start()\nsearch('a')\nbefore = n\nsearch('b')\n(n - before)"
    await yielded(session, code, limits=limits, authorized_imports=["*"])
    await asyncio.sleep(1.2)
    outcome = await session.resume([CallResult()])
    assert isinstance(outcome, Yielded), outcome
    await asyncio.sleep(1.2)
    done = await session.resume([CallResult()])
    assert isinstance(done, Finished), done
    assert done.used.cpu_seconds < 1.0, "its threads stood still meanwhile"

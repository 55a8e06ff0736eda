"""Tests of what a model is sent when it writes what it may not: early, by name, with what to do instead."""

import pytest

from cadre_sandbox.interpreters.session import InterpreterSession
from sandbox.worlds import failed, finished

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    ("code", "line", "says"),
    [
        ("x = 1\nimport os", 2, "import of os is not authorized. Authorized imports: "),
        ("import os.path", 1, "import of os.path is not authorized"),
        ("from os import path", 1, "import of os is not authorized"),
        ("def f():\n    import subprocess\nf()", 2, "import of subprocess"),
        ("from . import x", 1, "relative imports"),
        ("eval('1')", 1, "expression itself"),
        ("e = exec\ne('1')", 1, "exec() is not available"),
        ("open('x')", 1, "files are not"),
        ("name = input('name? ')", 1, "this console"),
        ("__import__('os')", 1, "import statement"),
        ("().__class__.__base__", 1, "the attribute __base__"),
        ("getattr(int, '__subclasses__')()", 1, "the attribute __subclasses__"),
        ("(lambda: 0).__globals__", 1, "the attribute __globals__"),
        ("__builtins__['open']", 1, "the attribute __builtins__"),
        ("def search(q): return q", 1, "search is a function"),
        ("import math as visit", 1, "visit is a function"),
        ("for search in []: pass", 1, "search is a function"),
        ("x = await search('a')", 1, "write search('a')"),
        ("[await search(q) for q in 'ab']", 1, "write search(q)"),
        ("async with search('a') as x:\n    pass", 1, "gather("),
        ("return 5", 1, "final_answer(value)"),
        ("!pip install requests", 1, "Authorized imports: "),
        ("x = 1\n%pip install requests", 2, "Authorized imports: "),
        ("pip install requests", 1, "Authorized imports: "),
        ("from tools import search", 1, "search(…)"),
        ("from tools import fetch", 1, "search(…)"),
        ("import tools", 1, "search(…)"),
        ("import search", 1, "search(…)"),
        ("from default_api import search as find", 1, "search(…)"),
        ("tools.search('a')", 1, "search(…)"),
    ],
)
async def test_it_is_refused_before_anything_runs(session: InterpreterSession, code: str, line: int, says: str) -> None:
    outcome = await failed(session, f"print('ran')\n{code}")
    assert (outcome.error, outcome.line, outcome.logs) == ("NotAllowed", line + 1, "")
    assert says in outcome.message
    assert outcome.alive


@pytest.mark.parametrize(
    ("code", "error", "says"),
    [
        ("final_answer()", "TypeError", "final_answer(value)"),
        ("final_answer(1, 2)", "TypeError", "final_answer(value)"),
        ("final_answer(result=1)", "TypeError", "final_answer(value)"),
        ("import importlib\nimportlib.import_module\ngetattr(importlib, 'import' + '_module')('json')\n"
         "b = getattr((lambda: 0), '__glo' + 'bals__')['__builtins__']\nb['open']('x')",
         "NotAllowed", "files are not"),
        ("b = getattr((lambda: 0), '__glo' + 'bals__')['__builtins__']\nb['__import__']('os')",
         "ImportError", "import of os is not authorized"),
    ],
)  # fmt: skip
async def test_what_the_reading_misses_is_refused_when_it_runs(
    session: InterpreterSession, code: str, error: str, says: str
) -> None:
    outcome = await failed(session, code, authorized_imports=["importlib"])
    assert outcome.error == error
    assert says in outcome.message


@pytest.mark.parametrize(
    ("imports", "code", "output"),
    [
        (["os.path"], "import os.path\nfrom os.path import join\nfrom os import path\njoin('a', 'b')", "a/b"),
        (["xml"], "import xml.dom.minidom as m\nm.__name__", "xml.dom.minidom"),
        (["xml.*"], "import xml.dom\nimport xml\nxml.dom.__name__", "xml.dom"),
        (["*"], "import os, subprocess\nos.name", "posix"),
        ([], "try:\n    import numpy\nexcept ImportError:\n    numpy = None\nnumpy is None", True),
        ([], "input = [3]\neval = max\nopen = 'yes'\n[input[0], eval(1, 2), open]", [3, 2, "yes"]),
        ([], "def f(input): return input\nf(4)", 4),
        (["asyncio"], "import asyncio\nasync def f(): return 4\nasyncio.run(f())", 4),
        ([], "class A: search = 3\ntools = A()\ntools.search", 3),
        (
            [],
            "class A:\n    def search(self): return type(self).__name__ + self.__class__.__name__\nA().search()",
            "AA",
        ),
        ([], "def f():\n    search = 5\n    return search\nf()", 5),
    ],
)
async def test_what_is_allowed_works(
    session: InterpreterSession, imports: list[str], code: str, output: object
) -> None:
    assert (await finished(session, code, authorized_imports=imports)).output == output


async def test_names_that_older_blocks_took_are_the_codes_own(session: InterpreterSession) -> None:
    await finished(session, "input = 7")
    assert (await finished(session, "input + 1")).output == 8


async def test_builtins_may_be_authorized_by_name(session: InterpreterSession) -> None:
    assert (await finished(session, "eval('1 + 1')", authorized_builtins=["eval"])).output == 2
    await failed(session, "exec('1')", authorized_builtins=["eval"])

"""Arrays, tables and images in the code's own libraries; with CADRE_SANDBOX_PYTHON, in the Python that it names."""

import re
import struct
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from cadre_sandbox.host import read_sandbox_settings
from cadre_sandbox.interpreters.contract import (
    BlockLimits,
    CallResult,
    Exchange,
    Finished,
    FunctionCall,
    Python,
    Yielded,
)
from cadre_sandbox.interpreters.pool import Sandbox
from cadre_sandbox.wire.values import BinaryValue, TaggedValue
from harness.texts import holds
from sandbox.worlds import World, failed, finished, run, worlds, yielded

FREE = {"authorized_imports": ["numpy", "pandas", "PIL", "random"]}
MODULES = ("numpy", "pandas", "PIL.Image")

pytestmark = pytest.mark.asyncio(loop_scope="module")


def png(red: int, green: int, blue: int) -> bytes:
    """An image of one pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes([0, red, green, blue]))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@pytest.fixture(scope="module", params=[world for world in worlds() if not world.options.get("python")])
def science(request: pytest.FixtureRequest) -> World:
    world: World = request.param
    if world.lacks:
        pytest.skip(world.lacks)
    executable = read_sandbox_settings().python or sys.executable
    found = subprocess.run([executable, "-c", "import numpy, pandas, PIL"], capture_output=True, check=False)
    if found.returncode:
        pytest.skip(f"numpy, pandas and Pillow are not all installed in {executable}: see CADRE_SANDBOX_PYTHON")
    return World(world.name, {**world.options, "python": Python(executable=executable, modules=MODULES)})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(science: World) -> AsyncIterator[Sandbox]:
    async with science.sandbox(most=BlockLimits(seconds=20, memory_mb=512)) as sandbox:
        yield sandbox


async def test_numbers_and_tables(lab: Sandbox) -> None:
    session = await lab.open()
    code = "import numpy as np, pandas as pd\ndf = pd.DataFrame({'a': np.arange(3)})\n[df.a.sum(), np.array([1.5])]"
    saved = await finished(session, code, **FREE)
    assert saved.output == [3, [1.5]]
    assert saved.notes == ()
    other = await lab.open()
    outcome = await run(other, "df['b'] = df.a * 2\nfinal_answer(df)", snapshot=saved.snapshot, **FREE)
    assert isinstance(outcome, Finished)
    assert outcome.output == BinaryValue("table", b"a,b\n0,0\n1,2\n2,4\n")


async def test_a_view_is_told(lab: Sandbox) -> None:
    session = await lab.open()
    made = await finished(session, "import numpy as np\na = np.arange(4)\nb = a[1:]\nc = a\nd = a.copy()", **FREE)
    (note,) = made.notes
    assert re.findall(r"\b[abcd]\b", note)[:2] == ["b", "a"], "the view, then what it is a view of"
    assert not {"c", "d"} & {*re.findall(r"\w+", note)}
    assert (await finished(session, "b[0] = 7\nint(a[1])", **FREE)).notes == (), "told once"


async def test_libraries_import_what_they_need(lab: Sandbox) -> None:
    session = await lab.open()
    code = "import pandas as pd\nlist(pd.to_datetime(pd.Series(['2026-01-02'])).dt.strftime('%d'))"
    assert (await finished(session, code, authorized_imports=["pandas"])).output == ["02"]


async def test_a_table_that_is_given_is_a_frame(lab: Sandbox) -> None:
    session = await lab.open()
    variables = {
        "sales": BinaryValue("table", b"town,sold\nUlm,3\nBonn,4\n"),
        "more": {"data": [BinaryValue("bytes", b"x")]},
    }
    code = "[type(sales).__name__, int(sales.sold.sum()), more['data'][0] == b'x']"
    done = await finished(session, code, variables=variables, **FREE)
    assert done.output == ["DataFrame", 7, True]


async def test_an_image_that_is_given_is_one_and_is_passed_on_as_one(lab: Sandbox) -> None:
    session = await lab.open()
    code = "print(photo.size, photo.getpixel((0, 0)))\nback = visit(url='x')\nfinal_answer(back.rotate(180))"
    asked = await yielded(session, code, variables={"photo": BinaryValue("image", png(1, 2, 3))}, **FREE)
    assert asked.logs == "(1, 1) (1, 2, 3)\n"
    done = await session.resume([CallResult(value=BinaryValue("image", png(4, 5, 6)))])
    assert isinstance(done, Finished)
    assert isinstance(done.output, BinaryValue)
    assert (done.output.form, done.notes) == ("image", ())
    again = await finished(await lab.open(), "photo.getpixel((0, 0))", variables={"photo": done.output}, **FREE)
    assert again.output == [4, 5, 6]


async def test_images_survive_the_interpreter(lab: Sandbox) -> None:
    session = await lab.open()
    saved = await finished(session, "kept = photo", variables={"photo": BinaryValue("image", png(9, 8, 7))}, **FREE)
    assert saved.notes == ()
    other = await lab.open()
    assert (await finished(other, "kept.getpixel((0, 0))", snapshot=saved.snapshot, **FREE)).output == [
        9,
        8,
        7,
    ]


async def test_arrays_chance_is_the_same_in_a_replay(lab: Sandbox) -> None:
    code = (
        "import numpy as np\na = np.random.random(3).tolist()\nb = np.random.default_rng().random(3).tolist()\n"
        "search(query=str([a, b]))"
    )
    session = await lab.open()
    first = await yielded(session, code, seed="s", **FREE)
    again = await lab.open()
    outcome = await run(
        again,
        code + "\nsearch(query='then')",
        seed="s",
        recorded=[Exchange([FunctionCall("search", first.calls[0].arguments)], [CallResult(value="r")], first.clock)],
        **FREE,
    )
    assert isinstance(outcome, Yielded), outcome
    assert outcome.calls[0].arguments == {"query": "then"}


async def test_too_large_an_array_is_an_error_and_the_code_goes_on(lab: Sandbox) -> None:
    session = await lab.open()
    error = await failed(session, "import numpy as np\nbig = np.zeros(10**9)", **FREE)
    assert error.error in ("MemoryError", "ArrayMemoryError", "_ArrayMemoryError")
    assert (await finished(session, "np.zeros(10).sum()", **FREE)).output == 0.0


async def test_what_is_no_image_or_has_no_columns(lab: Sandbox) -> None:
    session = await lab.open()
    variables = {"photo": BinaryValue("image", b"nonsense"), "none": BinaryValue("table", b"\n")}
    done = await finished(session, "print(photo)\n[len(photo), len(none)]", variables=variables, **FREE)
    assert done.output == [8, 0]
    assert holds(done.logs, "8", "Pillow")


TABLES = """
pd.Series([3, 1, 3, 2]).value_counts()
pd.DataFrame({'k': list('aab'), 'v': [1, 2, 3]}).groupby('k').sum()
pd.DataFrame({'k': list('aab'), 'j': [1, 2, 1], 'v': [1, 2, 3]}).groupby(['k', 'j']).v.mean()
pd.DataFrame({'d': pd.to_datetime(['2026-01-02', None]), 's': ['NA', None], 'o': ['', 'x']})
pd.DataFrame({'d': pd.date_range('2026', periods=2, tz='Asia/Tokyo'), 'c': pd.Categorical(['a', None])}, index=[5, 3])
pd.DataFrame({'i': pd.array([1, None], 'Int64'), 'b': pd.array([True, None], 'boolean')})
pd.DataFrame({'x': [1.5, float('nan'), 0.1]}, index=pd.date_range('2026', periods=3, name='d'))
pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([('a', 1), ('b', 2)]))
pd.DataFrame({'t': pd.to_timedelta([1, None], unit='s')})
pd.DataFrame({'a': [1, 2]}, index=['x', 'y']).T
pd.DataFrame({'a': [3, 1, 2]}).sort_values('a')
pd.DataFrame({'v': []})
pd.DataFrame()
pd.DataFrame({'v': [0.1, 1e300, -0.0]})
""".strip().splitlines()

IMAGES = [
    ("CMYK", "(1, 2, 3, 4)"),
    ("F", "0.5"),
    ("I", "70000"),
    ("I;16", "7"),
    ("LA", "(7, 8)"),
    ("1", "255"),
    ("RGBA", "(1, 2, 3, 4)"),
]

ARRAYS = [
    ("np.array([1.5, float('nan')])", [1.5, TaggedValue("float", "nan")]),
    ("np.array([1+2j])", [TaggedValue("complex", "1+2j")]),
    ("np.array(['2026-01-02'], 'M8[ns]')", ["2026-01-02T00:00:00.000000000"]),
    ("np.array([1500], 'm8[ms]')", [TaggedValue("timedelta", "P0DT1.500000S")]),
    ("[pd.NaT, pd.NA, pd.Timestamp('2026-01-02')]", [None, None, "2026-01-02T00:00:00"]),
    ("pd.Series([1, 2]) * 2", [2, 4]),
]

HEAD = "import numpy as np, pandas as pd\nfrom PIL import Image\n"


async def test_tables_and_images_are_in_other_code_what_they_were(lab: Sandbox) -> None:
    pictures = [f"Image.new({mode!r}, (1, 1), {color})" for mode, color in IMAGES]
    values = HEAD + f"tables = [{', '.join(TABLES)}]\nimages = [{', '.join(pictures)}]\n"
    left = await finished(await lab.open(), values + "final_answer([tables, images])", **FREE)
    assert isinstance(left.output, list)
    check = values + (
        "lost = [n for n, (old, new) in enumerate(zip(tables, given[0])) if type(old) is not type(new)"
        " or not old.equals(new) or list(old.index.names) != list(new.index.names) or str(old) != str(new)]\n"
        "lost += [old.mode for old, new in zip(images, given[1])"
        " if (old.mode, old.getpixel((0, 0))) != (new.mode, new.getpixel((0, 0)))]\nlost"
    )
    taken = await finished(await lab.open(), check, variables={"given": left.output}, **FREE)
    assert taken.output == []


async def test_an_index_is_in_the_csv_that_others_read(lab: Sandbox) -> None:
    code = HEAD + "final_answer(pd.DataFrame({'k': list('aab'), 'v': [1, 2, 3]}).groupby('k').sum())"
    done = await finished(await lab.open(), code, **FREE)
    assert isinstance(done.output, BinaryValue)
    assert done.output.data == b"k,v\na,3\nb,3\n"
    asked = await yielded(await lab.open(), code.replace("final_answer(", "search(query="), **FREE)
    assert asked.calls[0].arguments == {"query": done.output}, "an argument is the same"


async def test_arrays_and_missing_values(lab: Sandbox) -> None:
    code = HEAD + f"final_answer([{', '.join(expression for expression, _ in ARRAYS)}])"
    assert (await finished(await lab.open(), code, **FREE)).output == [value for _, value in ARRAYS]


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("pd.DataFrame({'p': pd.period_range('2026', periods=2)})", ".astype(str)"),
        ("Image.new('HSV', (1, 1))", "image.convert('RGB')"),
        ("np.array([5], 'm8[ns]')", "below a microsecond"),
        ("pd.Timedelta(5, 'ns')", "below a microsecond"),
    ],
)
async def test_what_cannot_travel_says_how_it_can(lab: Sandbox, expression: str, why: str) -> None:
    error = await failed(await lab.open(), f"{HEAD}final_answer({{'it': {expression}}})", **FREE)
    assert error.error == "NotAValue"
    assert "the answer['it']" in error.message
    assert why in error.message

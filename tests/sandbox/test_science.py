"""Arrays, tables and images in the code's own libraries; with CADRE_SANDBOX_PYTHON, in the Python that it names."""

import struct
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

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
from cadre_sandbox.settings import read_sandbox_settings
from cadre_sandbox.wire.values import BinaryValue
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
        pytest.skip(
            f"numpy, pandas and Pillow are not all installed in {executable}: see CADRE_SANDBOX_PYTHON"
        )
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
    made = await finished(
        session, "import numpy as np\na = np.arange(4)\nb = a[1:]\nc = a\nd = a.copy()", **FREE
    )
    assert made.notes == (
        "The variable b shares its numbers with a; should the interpreter be restarted, it is a copy.",
    )
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
    again = await finished(
        await lab.open(), "photo.getpixel((0, 0))", variables={"photo": done.output}, **FREE
    )
    assert again.output == [4, 5, 6]


async def test_images_survive_the_interpreter(lab: Sandbox) -> None:
    session = await lab.open()
    saved = await finished(
        session, "kept = photo", variables={"photo": BinaryValue("image", png(9, 8, 7))}, **FREE
    )
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
        recorded=[
            Exchange([FunctionCall("search", first.calls[0].arguments)], [CallResult(value="r")], first.clock)
        ],
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
    assert "Pillow cannot open it" in done.logs

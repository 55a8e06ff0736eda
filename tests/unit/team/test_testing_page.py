"""The examples of docs/testing.md run as they stand there."""

import asyncio
import inspect
import re
import runpy
from collections.abc import Callable
from pathlib import Path

from cadre.testing import Team

PAGE = (Path(__file__).parents[3] / "docs" / "testing.md").read_text()


def test_the_course_of_a_run_is_played_as_shown() -> None:
    [shown] = [block for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S) if "SimulatedRun(" in block]
    exec(compile(shown, "testing.md", "exec"), {})


async def test_the_page_s_tests_pass(cadre_team: Callable[..., Team], tmp_path: Path) -> None:
    blocks = [block for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S) if "def test_" in block]
    first, second, fixture = blocks
    written = [first + fixture.replace("        ...", '        await team.run("writer", "?")'), second]
    ran = []
    for number, text in enumerate(written):
        file = tmp_path / f"test_of_page_{number}.py"
        file.write_text(text)
        found = runpy.run_path(str(file))
        for name, test in found.items():
            if name.startswith("test_"):
                given = [cadre_team] if "cadre_team" in inspect.signature(test).parameters else []
                is_async = inspect.iscoroutinefunction(test)
                await (test(*given) if is_async else asyncio.to_thread(test, *given))
                ran.append(name)
    assert len(ran) == 3

"""What docs/testing.md shows is run as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[3] / "docs" / "testing.md").read_text()


def test_the_course_of_a_run_is_played_as_shown() -> None:
    [shown] = [
        block for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S) if "Course(" in block
    ]
    exec(compile(shown, "testing.md", "exec"), {})


def test_the_page_s_tests_pass(tmp_path: Path) -> None:
    blocks = [
        block
        for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
        if "async def test" in block
    ]
    first, second, fixture = blocks
    (tmp_path / "test_words.py").write_text(
        first + fixture.replace("        ...", '        await team.run("writer", "?")')
    )
    (tmp_path / "test_death.py").write_text(second)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert "3 passed" in done.stdout, done.stdout

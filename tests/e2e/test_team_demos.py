"""The shipped example teams show what they are for: `cadre up TEAM --run` as their README has it."""

import os
import subprocess
import sys
from pathlib import Path

TEAMS = Path(__file__).parents[2] / "teams"


def test_the_concierge_remembers_its_guests_and_forgets_one(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CADRE_")}
    done = subprocess.run(
        [sys.executable, "-m", "cadre.cli.main", "up", TEAMS / "concierge", "--run", "--timeout", "180"],
        cwd=tmp_path,
        env={
            **environment,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}",
            "CADRE_MEMORY_EMBEDDINGS": "none",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == (
        "Ada was remembered and then forgotten, Bob was remembered, and neither was told of the other."
    )
    assert "demo.program passed" in done.stderr
    assert list(tmp_path.iterdir()) == [], "a demo that passed leaves nothing behind"

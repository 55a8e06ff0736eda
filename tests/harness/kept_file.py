"""A run that was played by hand, as the file that `cadre runs export` would write."""

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec

from cadre.testing import SimulatedRun


def write_kept(sim: SimulatedRun, file: Path, *below: SimulatedRun) -> None:
    """Writes the run of the course, and those below it."""
    entries = [entry for one in (sim, *below) for entry in one.journal()]
    header = {"format": "cadre-run", "v": 1, "tree": sim.run.tree, "entries": len(entries)}
    lines: list[dict[str, Any]] = [header]
    lines += [
        {"line": "entry", "seq": n, "entry": msgspec.to_builtins(entry)} for n, entry in enumerate(entries, start=1)
    ]
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(gzip.compress("\n".join(json.dumps(line) for line in [*lines, {"line": "end"}]).encode()))

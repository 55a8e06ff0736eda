"""One chaos from start to verdict: crew, load, faults, quiet, evidence."""

import asyncio
import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from cadre.delivery.codec import encode
from chaos.crew import GROUPS, Crew
from chaos.evidence import Evidence
from chaos.executions import read_executions
from chaos.gathering import gather
from chaos.load import Load
from chaos.schedule import Fault, schedule
from chaos.strikes import Strikes
from chaos.verdict import violations
from harness.patience import patience

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "chaos"


class Outcome(NamedTuple):
    seed: int
    seconds: float
    folder: Path
    evidence: Evidence
    violations: list[str]
    took: float
    """Seconds, start of the processes included."""
    settling: float
    """Seconds from the end of the last fault to the end of the last run."""


async def campaign(
    seed: int, seconds: float, folder: Path | None = None, groups: Mapping[str, tuple[str, ...]] = GROUPS
) -> Outcome:
    """Runs it; the folder (build/chaos/seed-N) has logs, the schedule, and what was found."""
    folder = folder or KEPT / f"seed-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    faults = schedule(seed, seconds, groups)
    _write_faults(folder / "schedule.jsonl", faults)
    began = time.monotonic()
    with Crew(folder, groups) as crew:
        load, strikes = Load(crew.gateway_url, f"chaos-{seed}"), Strikes(crew)
        enough = asyncio.Event()
        submitting = asyncio.create_task(load.submit_until(enough))
        await asyncio.wait_for(load.going.wait(), patience(180))
        await strikes.carry_out(faults)
        enough.set()
        await submitting
        calm = time.monotonic()
        await load.all_ended(patience(180))
        settling = time.monotonic() - calm
        evidence = await collect(crew, load, strikes)
    found = violations(evidence)
    _write_evidence(folder, evidence, found)
    if not found:
        shutil.rmtree(folder / "store", ignore_errors=True)
    return Outcome(seed, seconds, folder, evidence, found, time.monotonic() - began, settling)


async def collect(crew: Crew, load: Load, strikes: Strikes) -> Evidence:
    """All that is left, once every run has ended (or was given up)."""
    evidence = Evidence(orders=load.orders, strikes=strikes.done)
    evidence.troubles = [*strikes.troubles, *load.troubles]
    await gather(crew.nats_url, evidence)
    evidence.executions = read_executions(crew.effects)
    evidence.spans = list(crew.receiver.spans)
    return evidence


def _write_faults(file: Path, faults: list[Fault]) -> None:
    file.write_text("".join(json.dumps(fault._asdict()) + "\n" for fault in faults))


def _write_evidence(folder: Path, evidence: Evidence, found: list[str]) -> None:
    """The journals in the order of time, the strikes that were carried out, and the violations."""
    entries = sorted(
        (stored for journal in evidence.journals.values() for stored in journal),
        key=lambda stored: stored.entry.at,
    )
    with (folder / "journals.jsonl").open("wb") as file:
        for stored in entries:
            file.write(b'{"seq":%d,"entry":%s}\n' % (stored.seq, encode(stored.entry)))
    strikes = "".join(json.dumps(strike._asdict()) + "\n" for strike in evidence.strikes)
    (folder / "strikes.jsonl").write_text(strikes)
    (folder / "orders.jsonl").write_bytes(b"".join(encode(order) + b"\n" for order in evidence.orders))
    (folder / "violations.txt").write_text("".join(f"{line}\n" for line in found))

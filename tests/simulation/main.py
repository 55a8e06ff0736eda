"""Plays many seeds on all cores, or one with its trace: `make simulate SEEDS=20000`, `make simulate SEED=123`."""

import argparse
import gc
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator

from simulation.world import LAST_EVENTS, Outcome, play

CHUNK = 25
MOST_FAILURES = 5


def main() -> int:
    """Exit status 0 only if every promise held in every seed."""
    options = _options()
    if options.seed is not None:
        return replay(options.seed)
    return simulate(range(options.first, options.first + options.seeds), options.jobs)


def replay(seed: int) -> int:
    """Plays one seed and reports its whole story."""
    outcome, world = play(seed)
    print(f"seed {seed}: {world.scenario}\n{world.faults}\n{world.trace.text()}")
    print(f"\nseed {seed}: {outcome.failure or 'every promise held'}")
    return 1 if outcome.failure else 0


def simulate(seeds: range, jobs: int) -> int:
    began, total, failed = time.monotonic(), Counter[str](), list[Outcome]()
    for done, outcome in enumerate(_outcomes(seeds, jobs), 1):
        total.update(outcome.counts)
        if outcome.failure is not None:
            failed.append(outcome)
            print(_story(outcome), file=sys.stderr)
            if len(failed) == MOST_FAILURES:
                break
        _tell_progress(done, len(seeds), time.monotonic() - began)
    print(summary(done, total, time.monotonic() - began, len(failed)))
    return 1 if failed else 0


def _tell_progress(done: int, of: int, seconds: float) -> None:
    line = f"{done:,} of {of:,} seeds, {done / seconds:.0f} a second"
    if sys.stderr.isatty():
        if done % 100 == 0:
            print(f"\r{line}", end="\r", file=sys.stderr, flush=True)
    elif done % 2000 == 0:
        print(line, file=sys.stderr, flush=True)


def summary(seeds: int, total: Counter[str], seconds: float, failed: int) -> str:
    crashes = total["crash"] + total["killed"]
    return (
        f"{seeds:,} seeds, {total['runs']:,} runs, {total['entry']:,} events journaled, {crashes:,} crashes,"
        f" {total['redelivered']:,} duplicates, {total['stale-read'] + total['fenced']:,} stale reads,"
        f" {seconds:.1f} s ({seeds / seconds:.0f} a second): {failed or 'none'} failed"
    )


def _outcomes(seeds: range, jobs: int) -> Iterator[Outcome]:
    if jobs == 1:
        yield from map(_play, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(_play, seeds, chunksize=CHUNK)


def _play(seed: int) -> Outcome:
    outcome, _ = play(seed)
    if seed % CHUNK == 0:
        gc.collect()
    return outcome


def _story(outcome: Outcome) -> str:
    _, world = play(outcome.seed)
    return (
        f"seed {outcome.seed} failed: {outcome.failure}\nits last events:\n{world.trace.text(LAST_EVENTS)}\n"
        f"replay it: make simulate SEED={outcome.seed}\n"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20_000, help="how many seeds to play")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes to play them in")
    parser.add_argument("--seed", type=int, help="play this one alone and print its trace")
    options = parser.parse_args()
    if options.seeds < 1 or options.jobs < 1:
        parser.error("--seeds and --jobs take numbers from 1")
    return options


if __name__ == "__main__":
    sys.exit(main())

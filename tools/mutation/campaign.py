"""Plants one mutation after the other, runs the tests that may notice it, and says which ones nothing noticed."""

import queue
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from mutation.explained import Explained
from mutation.scratch import Ran, Scratch
from mutation.selection import MOST_FILES, Imports, Layout
from mutation.sites import Mutation

FIRST_FILES, NEXT_FILES = 4, 12
"""Test files are run in three lots, so that the nearest need not wait until all have been collected."""

MOST_TEST_SECONDS = 5.0
"""A test that takes longer is left out. All seconds are of processor time."""

BASELINE_SECONDS = 2400.0
SECONDS_OF_A_SEED = 0.05
PATIENCE, STARTING_SECONDS = 4.0, 15.0
"""A lot of tests may take so many times what it takes without a mutation, and this on top."""


@dataclass(frozen=True)
class Verdict:
    """The outcome of one mutation."""

    mutation: Mutation
    killed_by: str | None = None
    timed_out: bool = False
    why: str | None = None
    """The reason that nothing can notice it."""
    seconds: float = 0.0

    @property
    def survived(self) -> bool:
        return self.killed_by is None and self.why is None


@dataclass
class Baseline:
    """The tests as they are without a mutation."""

    seconds: dict[str, float] = field(default_factory=dict)
    """The seconds that each file takes."""
    left_out: set[str] = field(default_factory=set)
    functions: Mapping[str, Collection[str]] = field(default_factory=dict)
    """The functions that each file runs of the mutated modules."""


class Campaign:
    """A number of mutations, tried on so many copies of the tree at once."""

    def __init__(self, layout: Layout, imports: Imports, *, jobs: int = 1, seeds: int = 0) -> None:
        """`seeds` of the simulation are played where the unit tests notice nothing."""
        self._layout, self._imports, self._jobs, self._seeds = layout, imports, jobs, seeds
        self._baseline = Baseline()
        self._near: dict[str, dict[str, int]] = {}
        """Test files near each module, looked up beforehand: the checkout may change while its copies are at work."""

    def verdicts(self, mutations: Sequence[Mutation], explained: Explained, *, anew: bool) -> Iterator[Verdict]:
        """One for each mutation, as they come; `anew` tries those that are explained too."""
        reasons = {one.id: why for one in mutations if (why := explained.why(one)) is not None}
        if not anew:
            yield from (Verdict(one, why=reasons[one.id]) for one in mutations if one.id in reasons)
            mutations = [one for one in mutations if one.id not in reasons]
        if not mutations:
            return
        with tempfile.TemporaryDirectory(prefix="cadre-mutation-") as folder, ExitStack() as ended:
            first = Scratch(self._layout, Path(folder, "0"))
            loaded = self._measure(first, mutations)
            copies = queue.SimpleQueue[Scratch]()
            others = (Scratch(self._layout, Path(folder, str(n)), like=first) for n in range(1, self._jobs))
            for copy in (first, *others):
                copy.start(loaded)
                ended.callback(copy.stop)
                self._control(copy, mutations[0])
                copies.put(copy)
            with ThreadPoolExecutor(self._jobs) as pool:
                tries = [pool.submit(self._try, copies, one, reasons.get(one.id)) for one in mutations]
                try:
                    for done in as_completed(tries):
                        yield done.result()
                finally:
                    pool.shutdown(cancel_futures=True)

    def _measure(self, scratch: Scratch, mutations: Sequence[Mutation]) -> Sequence[str]:
        """Notes what the tests are like without a mutation; returns the installed modules that they load."""
        scratch.start()
        self._near = {module: self._imports.tests_of(module) for module in {one.module for one in mutations}}
        files = sorted({file for tests in self._near.values() for file in tests})
        watched = {one.file for one in mutations}
        ran = scratch.test(files, seconds=BASELINE_SECONDS, options=(), compile=True, watched=watched)
        if ran.timed_out or not ran.seconds:
            raise RuntimeError(f"without a mutation the tests do not run: {ran.failed}")
        slow = {test for test, took in ran.seconds.items() if took > MOST_TEST_SECONDS}
        self._baseline = Baseline(left_out={*ran.failed, *slow}, functions=ran.functions)
        for test in sorted(self._baseline.left_out):
            print(f"left out: {test}: {'slow' if test in slow else 'fails by itself'}", file=sys.stderr)
        for test, took in ran.seconds.items():
            if test not in self._baseline.left_out:
                file = test.partition("::")[0]
                self._baseline.seconds[file] = self._baseline.seconds.get(file, 0.0) + took
        if self._seeds and scratch.simulate(self._seeds, seconds=BASELINE_SECONDS).failed:
            raise RuntimeError("without a mutation the simulation fails")
        return ran.loaded

    def _tests(self, mutation: Mutation) -> list[str]:
        """The files that run the mutated function; of what no test runs as a function, those near its module. The
        nearest first, of equally near ones the quickest."""
        near, seconds = self._near[mutation.module], self._baseline.seconds
        function = f"{mutation.file}:{mutation.qualname}"
        running = [file for file in near if function in self._baseline.functions.get(file, ())]
        order = sorted(running or near, key=lambda file: (near[file], seconds.get(file, 0.0), file))
        return order[:MOST_FILES]

    def _control(self, scratch: Scratch, mutation: Mutation) -> None:
        """Sees that what fails later fails by its mutation."""
        lot = self._tests(mutation)[:FIRST_FILES]
        if failed := scratch.test(lot, seconds=BASELINE_SECONDS, left_out=self._baseline.left_out).failed:
            raise RuntimeError(f"without a mutation {failed[0]} fails")

    def _try(self, copies: queue.SimpleQueue[Scratch], mutation: Mutation, why: str | None) -> Verdict:
        scratch, began = copies.get(), time.monotonic()
        try:
            with scratch.planted(mutation):
                ran = self._test(scratch, mutation)
        finally:
            copies.put(scratch)
        killed_by = ran.failed[0] if ran.failed else None
        return Verdict(mutation, killed_by, ran.timed_out, None if killed_by else why, time.monotonic() - began)

    def _test(self, scratch: Scratch, mutation: Mutation) -> Ran:
        files = self._tests(mutation)
        ends = (0, FIRST_FILES, FIRST_FILES + NEXT_FILES, len(files))
        for begin, end in pairwise(ends):
            if lot := files[begin:end]:
                usual = sum(self._baseline.seconds.get(file, 0.0) for file in lot)
                most = STARTING_SECONDS + PATIENCE * usual
                ran = scratch.test(lot, seconds=most, left_out=self._baseline.left_out)
                if ran.failed:
                    return ran
        if self._seeds and "simulation.world" in self._imports.importers(mutation.module):
            most = STARTING_SECONDS + PATIENCE * SECONDS_OF_A_SEED * self._seeds
            return scratch.simulate(self._seeds, seconds=most)
        return Ran([], {})

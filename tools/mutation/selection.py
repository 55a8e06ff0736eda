"""The mutations that are planted, and which tests may notice one: by a seeded draw and by the import graph."""

import random
import sys
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import zip_longest
from pathlib import Path

import grimp

from mutation.sites import Module, Site

ALWAYS = (
    "*:_for_call:min-max:*",  # the deadline of a call: the earlier of that and its run's
    "*:_defer:always:*",  # a rate limit is no failure
)
"""Mutations that no test noticed once, no matter what their modules are called today; they are always planted."""

ENOUGH_FILES, MOST_FILES = 20, 40
"""The most tests asked about one mutation. If fewer import a module, all tests may notice a bug in it."""

FURTHER = 100
"""The distance of tests that do not import a module: more than any chain of imports has."""

Planted = tuple[Module, Site]


@dataclass(frozen=True)
class Layout:
    """The folders in which a project keeps what is mutated and what tests it."""

    root: Path
    sources: tuple[str, ...]
    """Folders whose packages are on the import path."""
    tests: str
    """The folder of the tests, on the import path too."""
    test_packages: tuple[str, ...]
    """Packages in it that the import graph needs to know."""
    unit: tuple[str, ...]
    """The packages in it whose tests are run."""


class Imports:
    """The import graph of a project with its tests."""

    def __init__(self, layout: Layout) -> None:
        self._layout, self._rooms = layout, tuple(f"{room}." for room in layout.unit)
        folders = [layout.root / folder for folder in layout.sources]
        packages = [child.parent.name for folder in folders for child in sorted(folder.glob("*/__init__.py"))]
        path = [*map(str, folders), str(layout.root / layout.tests)]
        before, sys.path = sys.path, [*path, *sys.path]
        try:
            self._graph = grimp.build_graph(*packages, *layout.test_packages, cache_dir=None)
        finally:
            sys.path = before

    def modules_below(self, packages: Iterable[str]) -> list[str]:
        """The modules of these packages, and the modules that are named themselves."""
        wanted = tuple(packages)
        return sorted(name for name in self._graph.modules if any(f"{name}.".startswith(f"{one}.") for one in wanted))

    def file_of(self, module: str) -> Path:
        """The source file; a package's is its `__init__`."""
        inner = Path(*module.split("."))
        for folder in (*self._layout.sources, self._layout.tests):
            for end in (inner.with_suffix(".py"), inner / "__init__.py"):
                if (file := self._layout.root / folder / end).exists():
                    return file
        raise FileNotFoundError(module)

    def importers(self, module: str) -> dict[str, int]:
        """All that import the module, directly or through others, with the length of the shortest chain."""
        distance, waiting = {module: 0}, deque([module])
        while waiting:
            near = waiting.popleft()
            for further in self._graph.find_modules_that_directly_import(near):
                if further not in distance:
                    distance[further] = distance[near] + 1
                    waiting.append(further)
        return distance

    def tests_of(self, module: str) -> dict[str, int]:
        """Unit test files that may notice a bug in the module, with their distance from it.

        Where few import it, all others come behind them: what is loaded by its name at run time is imported by no
        statement. The files are relative to the project's root.
        """
        near = self._test_files(self.importers(module))
        if len(near) >= ENOUGH_FILES:
            return near
        return self._test_files(dict.fromkeys(self._graph.modules, FURTHER)) | near

    def _test_files(self, modules: Mapping[str, int]) -> dict[str, int]:
        return {
            self.file_of(name).relative_to(self._layout.root).as_posix(): distance
            for name, distance in modules.items()
            if name.startswith(self._rooms) and name.rpartition(".")[2].startswith("test_")
        }


def draw(modules: Iterable[Module], count: int, seed: int) -> list[Planted]:
    """That many mutations, spread over the modules and, in each, over the operators; 0 are all.

    What is drawn from a module depends on the seed and the module alone.
    """
    hands = [_shuffled(module, seed) for module in modules]
    always = [it for hand in hands for it in hand if is_always_planted(it[0].id_of(it[1]))]
    random.Random(seed).shuffle(hands)
    dealt = [it for turn in zip_longest(*hands) for it in turn if it is not None]
    drawn = list({it[0].id_of(it[1]): it for it in [*always, *dealt]}.values())
    return drawn[: max(count, len(always))] if count else drawn


def is_always_planted(id: str) -> bool:
    return any(fnmatch(id, pattern) for pattern in ALWAYS)


def _shuffled(module: Module, seed: int) -> list[Planted]:
    chance = random.Random(f"{seed}:{module.name}")
    by_operator = defaultdict[str, list[Planted]](list)
    for site in module.sites:
        by_operator[site.operator].append((module, site))
    stacks = [by_operator[operator] for operator in sorted(by_operator)]
    chance.shuffle(stacks)
    for stack in stacks:
        chance.shuffle(stack)
    return [it for turn in zip_longest(*stacks) for it in turn if it is not None]

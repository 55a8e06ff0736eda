"""The work of templates and expressions, counted in units: a decision made again must come to the same end, so nothing
here looks at a clock.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

MAX_WORK = 500_000
"""Units that one rendering or evaluation may take. A unit is what a processor of 2020 does in at most 100 ns."""

MAX_DECISION_WORK = 4 * MAX_WORK
"""Units that all templates of one decision may take together."""

_COMPILING, _COMPILING_PER_TOKEN = 6_000, 200
_PARSING, _PARSING_PER_TOKEN = 900, 40


class TemplateWork:
    """The work that was spent of an allowance."""

    __slots__ = ("most", "seen", "spent")

    def __init__(self, most: int = MAX_WORK) -> None:
        self.most = most
        self.spent = 0
        self.seen: set[str] = set()
        """Templates whose compiling was charged."""

    def charge(self, units: int) -> None:
        """Spend units. Raises OverflowError where fewer are left."""
        self.spent += units
        if self.spent > self.most:
            raise OverflowError(f"it takes more work than the {self.most:,} units that are allowed")


class ChargedFunction:
    """A function that conditions may call; each call takes the same units."""

    __slots__ = ("_function", "_units")

    def __init__(self, function: Callable[..., Any], units: int = 200) -> None:
        self._function, self._units = function, units

    def charge(self, work: TemplateWork) -> None:
        """Charge a call. Raises OverflowError."""
        work.charge(self._units)

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._function(*args, **named)


class _WorkWithin(TemplateWork):
    """The work of one rendering within a decision: bounded itself, and charged to the decision too."""

    __slots__ = ("_whole",)

    def __init__(self, whole: TemplateWork) -> None:
        super().__init__()
        self._whole = whole

    def charge(self, units: int) -> None:
        super().charge(units)  # what is refused here is not done: the decision does not pay for it
        self._whole.charge(units)


_decision: ContextVar[TemplateWork | None] = ContextVar("decision", default=None)


@contextmanager
def one_decision() -> Iterator[TemplateWork]:
    """Let all templates that are evaluated inside share one allowance."""
    work = TemplateWork(MAX_DECISION_WORK)
    token = _decision.set(work)
    try:
        yield work
    finally:
        _decision.reset(token)


def work_of_one_rendering() -> TemplateWork:
    """Return the allowance of one rendering, part of the decision's where one is being made."""
    whole = _decision.get()
    return TemplateWork() if whole is None else _WorkWithin(whole)


def charge_parsing(tokens: int) -> None:
    """Charge the decision for a template that is checked. Raises OverflowError."""
    whole = _decision.get()
    if whole is not None:
        whole.charge(_PARSING + tokens * _PARSING_PER_TOKEN)


def charge_compiling(text: str, tokens: int) -> None:
    """Charge the decision for a template that it evaluates: once, whether or not the process has it compiled already.
    Raises OverflowError."""
    whole = _decision.get()
    if whole is not None and text not in whole.seen:
        whole.seen.add(text)
        whole.charge(_COMPILING + tokens * _COMPILING_PER_TOKEN)

"""What is shown of a tree of runs, folded page by page: of a run that has ended only the little that is shown stays."""

from collections.abc import Iterable

from cadre.engine.budget import gained
from cadre.engine.fold import apply_entry
from cadre.journal.entry import Entry
from cadre.journal.events import DelegateFinished
from cadre.journal.run import Run
from cadre.ports import Stored
from cadre.protocol.usage import Usage
from cadre.service.revision import schemas_of
from cadre.views.run_summary import end_state
from cadre.views.story import Story


class TreeState:
    """The runs of a tree as far as its entries were taken in, in stream order."""

    def __init__(self, tree: str, *, keep_steps: bool) -> None:
        self.story = Story(tree)
        self._tree = tree
        self._keep_steps = keep_steps
        self._states: dict[str, Run] = {}
        self._own_usage: dict[str, Usage] = {}
        self._ended: set[str] = set()
        self._schemas: dict[str, str] = {}
        """Of those that have ended."""

    def take(self, page: Iterable[Stored]) -> None:
        """Takes in entries; one that was taken in before must not come again."""
        for seq, entry in page:
            self.story.take(seq, entry)
            own = [event for event in entry.events if not isinstance(event, DelegateFinished)]
            self._own_usage[entry.run] = self.own_usage(entry.run) + gained(own)
            # What comes behind a run's end changes nothing that is shown.
            if entry.run not in self._ended:
                self._fold(entry)

    def run(self, run: str) -> Run | None:
        """The run's state; None when none of its entries was taken in."""
        return self._states.get(run)

    def own_usage(self, run: str) -> Usage:
        """What the run has used without the runs below it."""
        return self._own_usage.get(run, Usage())

    def schemas(self, run: str) -> str:
        """The digest of what the tools that its agent names said of themselves in its last offer; empty without one."""
        state = self._states.get(run)
        if state is None or run in self._schemas:
            return self._schemas.get(run, "")
        return schemas_of(state.tools, state.spec.tools) if state.spec is not None else ""

    def _fold(self, entry: Entry) -> None:
        state = self._states.get(entry.run) or Run(id=entry.run, tree=self._tree)
        apply_entry(state, entry)
        if end_state(entry, entry.run) is not None:
            self._ended.add(entry.run)
            self._states[entry.run] = state
            self._schemas[entry.run] = self.schemas(entry.run)
            state = self._shown(state)
        self._states[entry.run] = state

    def _shown(self, ended: Run) -> Run:
        return Run(
            id=ended.id,
            tree=ended.tree,
            phase=ended.phase,
            result=ended.result,
            task=ended.task,
            deadline=ended.deadline,
            budget=ended.budget,
            revision=ended.revision,
            steps=ended.steps if self._keep_steps else [],
        )

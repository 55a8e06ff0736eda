"""What a model read in each call, rendered once more from the journal."""

import functools

from cadre.engine.chat import Transcript
from cadre.engine.fold import apply
from cadre.engine.model_request import ModelRequest
from cadre.journal.entry import Entry
from cadre.journal.events import AnyEvent
from cadre.journal.run import Run
from cadre.prompting.prompts import Prompts, kind_for, shipped_for


class ModelInput:
    """The state of one run beside its journal, kept in memory until the run ends."""

    def __init__(self, tree: str, run: str, prompts: Prompts | None = None) -> None:
        """`prompts` are those that the run keeps; without them only what is shipped is known."""
        self._run: Run | None = Run(id=run, tree=tree)
        self._prompts = prompts
        self._transcript: Transcript | None = None

    @property
    def run(self) -> Run | None:
        """The state as of the last event; None when entries are missing."""
        return self._run

    def enter(self, entry: Entry) -> None:
        """Begin an entry, before its events. After a missing entry nothing is known any more."""
        if self._run is None or entry.n != self._run.entries + 1:
            self._run = self._transcript = None
        else:
            self._run.entries = entry.n

    def apply(self, event: AnyEvent, entry: Entry) -> None:
        """Takes the state past an event of the entry that was begun."""
        if self._run is not None:
            apply(self._run, event, entry.n, entry.at)

    def request(self, purpose: str) -> ModelRequest | None:
        """The request of the model call that has just begun, with references for blobs; None when it is unknown.

        Without the run's prompts it is unknown for an agent with a prompt file of its own, and for a run that began
        with what another version of Cadre shipped.
        """
        if self._run is None or self._run.spec is None:
            return None
        if self._transcript is None:
            prompts = self._prompts or _shipped_prompts(self._run)
            if prompts is None:
                return None
            self._transcript = Transcript(prompts)
        return self._transcript.request(self._run, purpose)


def _shipped_prompts(run: Run) -> Prompts | None:
    shipped = shipped_for(run.spec) if run.spec is not None else None
    if run.spec is None or shipped is None:
        return None
    prompts = _shipped(shipped, kind_for(run.spec))
    return prompts if run.prompts in ("", prompts.ref) else None


@functools.cache
def _shipped(name: str, kind: str) -> Prompts:
    return Prompts.load(name, kind)

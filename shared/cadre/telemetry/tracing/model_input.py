"""What a model read: the request of each of a run's model calls, rendered once more from its journal."""

from __future__ import annotations

import copy
import functools

from cadre.engine.chat import ChatMessage, Transcript
from cadre.journal.events import AnyEvent, Entry
from cadre.journal.run import Purpose, Run
from cadre.loop.fold import apply
from cadre.prompting.prompt_file import Kind
from cadre.prompting.prompts import Prompts, kind_for


class ModelInput:
    """One run's state beside its spans, in memory as long as the run goes on."""

    def __init__(self, tree: str, run: str) -> None:
        self._run: Run | None = Run(id=run, tree=tree)
        self._transcript: Transcript | None = None

    def enter(self, entry: Entry) -> None:
        """Before the entry's events. Where entries are missing nothing is known up to the next snapshot."""
        if self._run is None or entry.n != self._run.entries + 1:
            self._transcript = None
            # The entry is not ours to change, and folding changes the state.
            self._run = copy.deepcopy(entry.snapshot)
        if self._run is not None:
            self._run.entries = entry.n

    def apply(self, event: AnyEvent, entry: Entry) -> None:
        if self._run is not None:
            apply(self._run, event, entry.n, entry.at)

    def messages(self, purpose: Purpose) -> list[ChatMessage]:
        """Those of the model call that has just begun, blobs as references; [] when they cannot be told.

        An agent with a prompt file of its own has it on its machine alone.
        """
        run = self._run
        if run is None or run.spec is None or run.spec.prompts is not None:
            return []
        if self._transcript is None:
            self._transcript = Transcript(_shipped(kind_for(run.spec)))
        return self._transcript.request(run, purpose).messages


@functools.cache
def _shipped(kind: Kind) -> Prompts:
    return Prompts.load(kind, kind)

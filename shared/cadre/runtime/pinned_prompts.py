"""The prompts that a run began with, found again by whoever goes on with it."""

import logging

from cadre.errors import BlobMissing, PromptError
from cadre.ports import Blobs
from cadre.prompting.prompt_file import shipped_names
from cadre.prompting.prompts import Prompts
from cadre.recent import Recent

log = logging.getLogger("cadre.runner")

MOST_PROMPTS = 16
"""Prompts of other revisions that a process keeps compiled."""


class PinnedPrompts:
    """The prompts of one service, and those of the runs that began with others.

    `own` are the service's. They are stored once per start, under the digest of their texts, which a run's journal
    names: a replica that was started from other files reads them there.
    """

    def __init__(self, own: Prompts, blobs: Blobs | None = None) -> None:
        self.own = own
        self.ref = ""
        """Where runs that begin now find `own` again; "" before they are stored."""
        self._blobs = blobs
        self._known = Recent[str, Prompts](MOST_PROMPTS)

    async def store(self) -> None:
        """Stores the service's own prompts. Raises RetryableError."""
        if self._blobs is not None:
            self.ref = await self._blobs.put(self.own.encoded)

    async def find(self, ref: str) -> Prompts:
        """The prompts of that reference; the service's own for "" and where they are gone. Raises BusUnavailable."""
        if ref in ("", self.own.ref) or self._blobs is None:
            return self.own
        prompts = self._known.get(ref)
        if prompts is None:
            prompts = await self._read(ref, self._blobs)
        self._known[ref] = prompts
        return prompts

    async def _read(self, ref: str, blobs: Blobs) -> Prompts:
        try:
            return await read_prompts(ref, blobs)
        except (BlobMissing, PromptError) as error:
            log.warning("runs go on with other prompts than they began with: %s", error)
            return self.own


async def read_prompts(ref: str, blobs: Blobs) -> Prompts:
    """The prompts of that reference, or those of the installed version if they are the very same. Raises BlobMissing,
    PromptError, BusUnavailable."""
    try:
        return Prompts.decode(ref, await blobs.get(ref))
    except (BlobMissing, PromptError):
        found = next((one for one in map(Prompts.load, shipped_names()) if one.ref == ref), None)
        if found is None:
            raise
        return found

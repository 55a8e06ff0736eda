"""What a test team and its runs both stand on: records, journals, files and the time of a deployment in memory."""

import asyncio
import contextlib
import itertools

from cadre.delivery.codec import decode, encode
from cadre.journal.entry import Entry
from cadre.protocol.messages import Record
from cadre.protocol.nats_users import GATEWAY_SENDER
from cadre.testing.in_memory_deployment import InMemoryDeployment


class TeamWorld:
    """A deployment in memory as people and their runs see it; `change` is set when something may have come to rest."""

    def __init__(
        self,
        deployment: InMemoryDeployment,
        change: asyncio.Event,
        *,
        real_time: bool = False,
        approves: bool = False,
    ) -> None:
        self._deployment = deployment
        self._change = change
        self.approves = approves
        """Whether calls that wait for a person are let be made."""
        self._real_time = real_time
        """Whether waits take their time, as those for a real endpoint must."""
        self._sent = itertools.count(1)

    def next_number(self) -> int:
        """What no record of a person has in its id yet."""
        return next(self._sent)

    async def send(self, record: Record, agent: str) -> None:
        """Puts a record into an agent's inbox, as the gateway does."""
        subject = self._deployment.topology.inbox(agent, GATEWAY_SENDER, record.tree, record.run)
        self._deployment.stream.append(subject, encode(record), message_id=record.id)
        await asyncio.sleep(0)

    def run_ids(self) -> list[str]:
        """The ids of all runs, those of members too, in the order in which they began."""
        stream, prefix = self._deployment.stream, f"{self._deployment.topology.prefix}.run."
        return [subject.split(".")[-1] for subject in stream.subjects(lambda one: one.startswith(prefix))]

    def journal(self, run: str, after: int = 0) -> list[Entry]:
        """The entries of a run's journal so far, behind the first `after`; [] for a run that has not begun."""
        subject = self._deployment.topology.journal(run.split("_")[0], run)
        return [
            decode(message.data, Entry) for message in self._deployment.stream.of_subject(subject)[after:]
        ]

    def stored(self) -> list[tuple[int, Entry]]:
        """The entries of all journals so far with their sequences, in the order in which they were stored."""
        stream, prefix = self._deployment.stream, f"{self._deployment.topology.prefix}.run."
        found = [one for one in stream.messages.values() if one.subject.startswith(prefix)]
        return [(one.seq, decode(one.data, Entry)) for one in sorted(found)]

    def files(self, run: str) -> dict[str, bytes]:
        """The files in the workspace of the run's tree, by path."""
        tree = run.split("_")[0]
        found = [file for (of, _), file in self._deployment.files.items() if of == tree]
        return {file.path: self._deployment.blobs[file.ref] for file in found if file.ref is not None}

    def skip(self, seconds: float) -> None:
        """Moves the team's clock on: timers, waits and deadlines that become due go off."""
        self._deployment.clock.skip(seconds)

    def note_change(self) -> None:
        """Has whoever waits for a change look again."""
        self._change.set()

    async def changed(self, until: float | None = None) -> None:
        """Wait until something may have come to rest, or until this time. Raises what a handler, or a model, has
        raised."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if until is None else max(0.0, until - self.now())):
                await self._change.wait()
                self._change.clear()
        await asyncio.sleep(0)
        self.check()

    def check(self) -> None:
        """Raise what a handler, or a model, has raised."""
        if self._deployment.problem is not None:
            raise self._deployment.problem

    def is_idle(self) -> bool:
        """Whether all that is left to do waits for a time or for somebody outside."""
        return self._deployment.is_idle()

    async def skip_to_next(self, until: float | None = None) -> None:
        """Move the clock on to what is due next, but not beyond `until`; in real time wait for it."""
        left = self.next_in()
        if left is None or self._real_time:
            await self.changed(until)
        elif until is not None and self.now() + left > until:
            self.skip(until - self.now())
        else:
            self._deployment.clock.skip_to_next()

    def next_in(self) -> float | None:
        """Seconds until the next thing is due by the clock; None when nothing is."""
        return self._deployment.clock.next_in()

    def now(self) -> float:
        """The team's time in Unix seconds."""
        return self._deployment.clock.now()

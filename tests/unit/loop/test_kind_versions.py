"""A run keeps the version of its kind that it began with, while new runs are decided by the newest one."""

from collections.abc import Iterator

import msgspec
import pytest

from cadre.delivery.codec import decode, encode, newer_schema
from cadre.engine.draft import Draft
from cadre.engine.kind import find_kind
from cadre.errors import NewerKind
from cadre.journal import events as ev
from cadre.journal.entry import Entry
from cadre.kinds.tool_calling.kind import ToolCallingKind
from cadre.protocol.messages import ErrorInfo
from cadre.spec.kinds import declared_kinds
from unit.loop.build import SimulatedRun, replay_of

NAME = "tool_calling"


class Impatient(ToolCallingKind):
    """Invented version 2: a step that goes wrong ends the run."""

    def go_on(self, draft: Draft, error: ErrorInfo | None = None) -> None:
        if error is None:
            super().go_on(draft)
        else:
            draft.stop("error", error=error)


IMPATIENT = Impatient()


@pytest.fixture
def old() -> SimulatedRun:
    """Return a run that began before version 2 existed."""
    return SimulatedRun().begin()


@pytest.fixture
def upgraded(old: SimulatedRun, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    declared = declared_kinds()
    now = declared[NAME]
    behavior = {**now.behavior, 2: f"{__name__}:IMPATIENT"}
    with monkeypatch.context() as patch:
        patch.setitem(declared, NAME, now._replace(behavior=behavior))
        yield
    find_kind.cache_clear()


@pytest.mark.usefixtures("upgraded")
def test_an_old_run_is_decided_by_its_own_version(old: SimulatedRun) -> None:
    assert isinstance(old.say(content="No call.")[-1], ev.ModelCalled)
    assert [entry.kind_version for entry in old.journal()] == [1, 1]
    assert replay_of(old).divergences == []


@pytest.mark.usefixtures("upgraded")
def test_a_new_run_is_decided_by_the_newest_version() -> None:
    sim = SimulatedRun().begin()
    end = sim.say(content="No call.")[-1]
    assert isinstance(end, ev.RunFinished)
    assert end.state == "error"
    assert [entry.kind_version for entry in sim.journal()] == [2, 2]
    assert replay_of(sim).divergences == []


@pytest.mark.usefixtures("upgraded")
def test_a_version_that_is_not_installed_is_left_to_a_newer_replica(old: SimulatedRun) -> None:
    entry = old.journal()[0]
    assert newer_schema(encode(msgspec.structs.replace(entry, kind_version=2))) is None
    assert isinstance(newer_schema(encode(msgspec.structs.replace(entry, kind_version=3))), NewerKind)


def test_a_section_that_is_not_known_here_is_left_to_a_replica_that_has_its_kind(old: SimulatedRun) -> None:
    entry = old.journal()[0]
    section = b'"spec":{"sections":[{"kind":"mime"}],"name":'
    written = encode(entry).replace(b'"spec":{"name":', section, 1)
    assert section in written
    assert newer_schema(written) is None
    with pytest.raises(NewerKind, match="'mime'"):
        decode(written, Entry)

"""Tests of what a path of a workspace held at some point of the stream that its versions and the journals lie in."""

import msgspec
import pytest

from cadre.protocol.files import UNKNOWN_POSITION, FileWritten, PastFile, as_of, carried_over, is_carried
from cadre.tools.files import File
from unit.memory_files import MemoryFiles


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


def found(files: MemoryFiles, path: str, point: int | None) -> PastFile:
    record, seq = files.index.kept["t", path]
    return as_of(record, seq, point)


def test_an_old_record_is_read_as_it_was() -> None:
    written = msgspec.json.decode(b'{"version":1,"by":"t_1_0#1","ref":"blob:00"}', type=FileWritten)
    assert written == FileWritten(1, "t_1_0#1", "blob:00")
    assert msgspec.json.encode(written) == b'{"version":1,"by":"t_1_0#1","ref":"blob:00"}'


async def test_each_version_is_there_from_its_place_to_that_of_the_next(files: MemoryFiles) -> None:
    # The places are 1, 2, …: the memory's index counts its writes.
    await files.of("t_1_0").write("other", "x")
    first = await files.of("t_1_1").write("a", File(b"\x89PNG\r\n\x1a\n", name="a"))
    await files.of("t_2_0").write("a", "two")
    await files.of("t_3_0").delete("a")
    await files.of("t_4_0").write("a", "three")
    assert found(files, "a", 2) == (None, True)
    at_three = found(files, "a", 3)
    assert at_three.is_certain
    assert at_three.file is not None
    told = {name: getattr(first, name) for name in ("path", "version", "ref", "media_type", "size", "at", "by")}
    assert {name: getattr(at_three.file, name) for name in told} == told
    assert (first.media_type, first.by) == ("image/png", "tool")
    assert [found(files, "a", point).file is None for point in (4, 5, 6)] == [False, True, False]
    for point, version in ((4, 2), (6, 4), (None, 4)):
        file = found(files, "a", point).file
        assert file is not None
        assert file.version == version


async def test_a_version_that_is_not_kept_any_more_is_told(files: MemoryFiles) -> None:
    for number in range(70):
        await files.of(f"t_{number}_0").write("a", str(number))
    for point, version, is_certain in ((8, 7, True), (5, 70, False)):
        then = found(files, "a", point)
        assert then.file is not None
        assert (then.file.version, then.is_certain) == (version, is_certain)


async def test_what_an_earlier_version_of_cadre_has_followed_is_not_told(files: MemoryFiles) -> None:
    await files.of("t_1_0").write("a", "one")
    await files.of("t_2_0").write("a", "two")
    record, seq = files.index.kept["t", "a"]
    bare = [FileWritten(one.version, one.by, one.ref) for one in record.history]
    old = msgspec.structs.replace(record, history=bare)
    assert as_of(old, seq, seq) == (old, False)
    assert as_of(old, seq, seq + 1) == (old, True)


async def test_where_an_imported_file_lay_is_not_known(files: MemoryFiles) -> None:
    await files.of("t_1_0").write("a", "one")
    record, seq = files.index.kept["t", "a"]
    came = msgspec.structs.replace(
        record, history=[msgspec.structs.replace(one, seq=UNKNOWN_POSITION) for one in record.history]
    )
    assert as_of(came, seq, seq + 1) == (came, False)
    assert as_of(came, seq, None) == (came, True)


async def test_a_carried_file_counts_on_and_is_written_anew(files: MemoryFiles) -> None:
    """Its calls are those of another tree, even where they have the same name, as a request's files have."""
    await files.of("task").write("a", "one")
    await files.of("t_1_0").write("a", "two")
    record, _ = files.index.kept["t", "a"]
    await files.index.write(carried_over(record, "u"), 0)
    assert is_carried(files.index.kept["u", "a"][0])
    entry = await files.of("task", tree="u").write("a", "one", expected=2)
    assert entry.version == 3
    after, seq = files.index.kept["u", "a"]
    assert not is_carried(after)
    assert (await files.of("u_1_0", tree="u").read("a")).text == "one"
    before = as_of(after, seq, seq)
    assert before.is_certain
    assert before.file is not None
    assert (before.file.version, before.file.ref) == (2, record.ref)

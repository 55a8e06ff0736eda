"""The files of a tree: versions, writes that come twice, writers that meet, paths that lead nowhere."""

import asyncio

import pytest

from cadre.delivery.workspace_store import MAX_FILES
from cadre.errors import BlobMissing, TooLarge
from cadre.tools.files import File
from cadre.tools.workspace import FileChanged, NoSuchFile, WorkspaceError, WrongPath, normal_path
from harness.texts import holds
from unit.memory_files import MemoryFiles


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


async def test_what_one_call_writes_another_reads(files: MemoryFiles) -> None:
    entry = await files.of("t_1_0").write("notes/a.txt", "größe")
    assert (entry.path, entry.version, entry.size, entry.media_type) == ("notes/a.txt", 1, 7, "text/plain")
    file = await files.of("t_1_0_1_0").read("./notes//a.txt")
    assert (file.text, file.name, file.media_type) == ("größe", "a.txt", "text/plain")


async def test_trees_do_not_see_each_other(files: MemoryFiles) -> None:
    await files.of("t_1_0").write("a.txt", "x")
    with pytest.raises(NoSuchFile, match=r"'a\.txt'"):
        await files.of("u_1_0", tree="u").read("a.txt")


async def test_a_missing_file_is_told_with_those_that_are_there(files: MemoryFiles) -> None:
    for number in range(20):
        await files.of("t_1_0").write(f"{number:02}.txt", "x")
    with pytest.raises(NoSuchFile, match=r"19\.txt$"):
        await files.of("t_1_1").read("none.txt")
    for number in range(20, 25):
        await files.of("t_1_0").write(f"{number:02}.txt", "x")
    with pytest.raises(NoSuchFile) as caught:
        await files.of("t_1_1").read("none.txt")
    assert holds(str(caught.value), "'none.txt'", "00.txt, 01.txt")
    assert str(caught.value).endswith("19.txt and 5 more")


async def test_a_call_that_is_run_again_writes_nothing_again(files: MemoryFiles) -> None:
    async def run(call: str) -> list[int]:
        workspace = files.of(call)
        texts = ("one", "two", "one")
        return [(await workspace.write("a.txt", text)).version for text in texts]

    assert await run("t_1_0") == [1, 2, 3]
    assert (await files.of("t_1_1").write("a.txt", "later")).version == 4
    assert await run("t_1_0") == [1, 2, 3]
    assert (await files.of("t_2_0").read("a.txt")).text == "later"


async def test_a_write_whose_answer_was_lost_is_one_write(files: MemoryFiles) -> None:
    files.index.lost_answers = 1
    assert (await files.of("t_1_0").write("a.txt", "x", expected=0)).version == 1
    assert files.index.writes == 1


async def test_writers_that_meet_all_write(files: MemoryFiles) -> None:
    calls = [files.of(f"t_1_{number}").write("a.txt", str(number)) for number in range(8)]
    assert sorted(entry.version for entry in await asyncio.gather(*calls)) == list(range(1, 9))


async def test_an_expected_version_keeps_what_another_wrote(files: MemoryFiles) -> None:
    first = await files.of("t_1_0").write("a.txt", "one", expected=0)
    await files.of("t_1_1").write("a.txt", "two", expected=first.version)
    with pytest.raises(FileChanged, match=r"not at version 1 any more: it has version 2: read it again"):
        await files.of("t_1_2").write("a.txt", "three", expected=first.version)
    with pytest.raises(FileChanged):
        await files.of("t_1_3").write("a.txt", "three", expected=0)
    # The call that was run again did replace it, then.
    assert (await files.of("t_1_1").write("a.txt", "two", expected=first.version)).version == 2


async def test_a_deleted_file_is_gone_and_its_versions_go_on(files: MemoryFiles) -> None:
    await files.of("t_1_0").write("a.txt", "x")
    await files.of("t_1_1").delete("a.txt")
    await files.of("t_1_1").delete("a.txt")  # the same call, run again
    with pytest.raises(NoSuchFile):
        await files.of("t_1_2").delete("a.txt")
    assert await files.of("t_1_2").files() == []
    assert (await files.of("t_1_3").write("a.txt", "y", expected=0)).version == 3


async def test_files_are_listed_by_path(files: MemoryFiles) -> None:
    for path in ("b", "a/z", "a/b"):
        await files.of("t_1_0").write(path, path)
    assert [entry.path for entry in await files.of("t_1_1").files()] == ["a/b", "a/z", "b"]


async def test_size_and_number_are_bounded(files: MemoryFiles) -> None:
    workspace = files.of("t_1_0", most_bytes=3)
    await workspace.write("a", b"123")
    with pytest.raises(TooLarge, match=r"\bfile a\b") as large:
        await workspace.write("a", b"1234")
    assert (large.value.size, large.value.limit) == (4, 3)
    for number in range(MAX_FILES - 1):
        await workspace.write(str(number), b"")
    with pytest.raises(WorkspaceError, match="1000"):
        await workspace.write("one more", b"")
    await workspace.write("a", b"321")


async def test_a_file_is_kept_as_it_is(files: MemoryFiles) -> None:
    await files.of("t_1_0").write("shot", File(b"\x89PNG\r\n\x1a\n", name="x.png"))
    found = await files.of("t_1_1").read("shot")
    assert (found.media_type, found.data) == ("image/png", b"\x89PNG\r\n\x1a\n")


async def test_blobs_are_read_by_whole_references(files: MemoryFiles) -> None:
    ref = await files.blobs.put(b"x")
    assert await files.of("t_1_0").blob(ref) == b"x"
    for wrong in ("blob:12", ref.removeprefix("blob:"), f"{ref}0"):
        with pytest.raises(BlobMissing):
            await files.of("t_1_0").blob(wrong)


@pytest.mark.parametrize(
    ("path", "normal"),
    [("a", "a"), ("./a//b/", "a/b"), ("/a/./b", "a/b"), ("//a", "a"), ("größe 1.txt", "größe 1.txt")],
)
def test_paths_are_written_one_way(path: str, normal: str) -> None:
    assert normal_path(path) == normal == normal_path(normal)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "names no file"),
        ("/", "names no file"),
        ("../a", r"'\.\./a'.* \.\.$"),
        ("a/../../b", r"'a/\.\./\.\./b'.* \.\.$"),
        ("a\\b", "with / between folders"),
        ("a\nb", "printable"),
        ("a\0", "printable"),
        ("a" * 600, "at most 512 characters, this one 600"),
    ],
)
def test_wrong_paths_are_refused(path: str, why: str) -> None:
    with pytest.raises(WrongPath, match=why):
        normal_path(path)

"""Tests of what an agent of another make is sent, in words and files."""

from cadre.adapters.remote_agent_tools import RemoteMessage, name_of
from cadre.tools.files import File

GIF = b"GIF89a......"


def test_images_of_all_kinds_are_passed_on_or_told_of() -> None:
    images = [
        "data:image/gif;base64,R0lGODlhLi4uLi4u",
        "blob:12",
        "https://example.org/a.png",
        "data:image/gif;base64,?",
    ]
    texts, files = RemoteMessage("1", "Look!", [], images, {}).in_words()
    assert [file.info.ref for file in files] == [File(GIF).info.ref, "blob:12"]
    assert (files[0].data, name_of(files[0], 1)) == (GIF, "image-1.gif")
    assert texts[:2] == ["Look!", "Image: https://example.org/a.png"]
    assert len(texts) == 3, "the image that cannot be read is not passed over in silence"


def test_a_file_keeps_its_name() -> None:
    assert name_of(File(b"a,b", name="x/table.csv"), 2) == "table.csv"
    assert name_of(File(b"a", media_type="application/x-nobody-knows"), 3) == "file-3"

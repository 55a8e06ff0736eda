"""Files as tools take and return them: what they are recognized by, how they travel, what a model is shown of them."""

from typing import Any

import pytest

from cadre.tool import InvalidArguments, ToolContext, tool
from cadre.tools.files import File, NotLoaded, media_type_of
from unit.memory_files import MemoryFiles

PNG = b"\x89PNG\r\n\x1a\n rest"
WAV = b"RIFF\x10\0\0\0WAVEfmt "


@pytest.mark.parametrize(
    ("data", "name", "told", "kind"),
    [
        (PNG, "", "", "image/png"),
        (WAV, "", "", "audio/wav"),
        (b"ID3\x04", "", "", "audio/mpeg"),
        (b"%PDF-1.7", "", "", "application/pdf"),
        (b"a,b\n", "a.csv", "", "text/csv"),
        (b"a,b\n", "", "text/csv; charset=utf-8", "text/csv"),
        (b"", "", "", "application/octet-stream"),
        # An image is what its bytes say: an endpoint refuses any other.
        (PNG, "a.jpg", "image/jpeg", "image/png"),
        (b"no image", "a.png", "", "application/octet-stream"),
    ],
)
def test_the_media_type_is_seen_told_or_named(data: bytes, name: str, told: str, kind: str) -> None:
    assert media_type_of(data, name, told) == kind


def test_a_file_travels_as_a_reference() -> None:
    file = File(PNG, name="plots/a.png")
    told = file.to_json()
    assert told["$file"].keys() == {"ref", "media_type", "name", "size"}
    assert (told["$file"]["name"], told["$file"]["media_type"]) == ("a.png", "image/png")
    back = File.from_json(told)
    assert back == file
    with pytest.raises(NotLoaded, match="was not fetched"):
        _ = back.data


@tool(read_only=True)
async def measure(file: File, others: list[File] | None = None) -> dict[str, int]:
    """Measures.

    Args:
        file: What to measure.
        others: More of it.
    """
    return {one.name: len(one.data) for one in [file, *(others or [])]}


def test_a_model_is_told_how_to_name_a_file() -> None:
    schema = measure.card.input_schema["properties"]["file"]
    assert schema["description"] == "What to measure."
    assert [option["type"] for option in schema["anyOf"]] == ["string", "object"]
    assert "workspace" in schema["anyOf"][0]["description"]


async def test_arguments_are_fetched_by_path_value_or_reference() -> None:
    files = MemoryFiles()
    await files.of("t_1_0").write("docs/a.txt", "four")
    ref = await files.blobs.put(PNG)
    context = ToolContext(workspace=files.of("t_1_1"))
    value = File(PNG, name="p.png").to_json()
    arguments: dict[str, Any] = {"file": "docs/a.txt", "others": [value]}
    assert await measure.call(arguments, context) == {"a.txt": 4, "p.png": len(PNG)}
    assert await measure.call({"file": ref}, context) == {"": len(PNG)}
    for refs in ([ref], [ref, "blob:" + "0" * 64]):
        assert await measure.call({"file": {"$given": ["image", *refs]}}, context) == {"": len(PNG)}


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("b.txt", "'b.txt'"),
        ("../a.txt", "workspace"),
        ("blob:" + "0" * 64, "blob:" + "0" * 64),
        ({"$file": {"name": "x"}}, "no file: Object missing required field `ref`"),
        ({"file": 1}, "path"),
        (7, "path"),
    ],
)
async def test_what_is_no_file_is_told_to_the_model(wrong: Any, why: str) -> None:
    files = MemoryFiles()
    await files.of("t_1_0").write("a.txt", "x")
    with pytest.raises(InvalidArguments) as caught:
        await measure.call({"file": wrong}, ToolContext(workspace=files.of("t_1_1")))
    assert why in str(caught.value)


def test_outputs_say_that_they_are_files() -> None:
    @tool
    def plot() -> File:
        """Plots."""
        return File(PNG)

    @tool
    def raw() -> bytes:
        """Raw."""
        return PNG

    @tool
    def pages() -> list[File]:
        """Pages."""
        return []

    assert plot.card.output_schema == raw.card.output_schema
    assert plot.card.output_schema is not None
    assert plot.card.output_schema["required"] == ["$file"]
    assert pages.card.output_schema == {"type": "array", "items": plot.card.output_schema}

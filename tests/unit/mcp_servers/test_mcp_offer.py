"""Tools of MCP servers as tools of Cadre: names, effects, what is left out; and their results."""

import json
from pathlib import Path
from typing import Any

import pytest

from cadre.adapters.mcp.server import McpTool, name_for, tools_of, value_of
from cadre.adapters.mcp.server_file import read_servers
from cadre.spec.names import NAME
from cadre.tool import File, ToolContext

types = pytest.importorskip("mcp_types")


async def no_caller(tool: McpTool, arguments: dict[str, Any], context: ToolContext) -> Any:
    return tool.listed, arguments


def offered(folder: Path, listing: list[Any], **section: Any) -> dict[str, McpTool]:
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"desk": {"command": "sh", "cadre": section}}}))
    [spec] = read_servers(str(file))
    return {tool.name: tool for tool in tools_of(spec, listing, no_caller)}


def listed(name: str, schema: dict[str, Any] | None = None, **fields: Any) -> Any:
    return types.Tool(name=name, input_schema=schema or {"type": "object"}, **fields)


def hints(**said: bool) -> Any:
    return types.ToolAnnotations(**said)


def test_names_are_derived_from_nothing_but_the_prefix_and_the_name() -> None:
    assert name_for("get_it", "desk_") == "desk_get_it"
    assert name_for("files/read.all é", "") == "files_read_all__"
    long = [name_for(f"{'x' * 80}{number}", "desk_") for number in range(2)]
    assert len({*long}) == 2
    assert all(len(name) == 64 and NAME.fullmatch(name) for name in long)


def test_of_two_with_one_name_the_one_that_has_it_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = offered(tmp_path, [listed("a.b"), listed("a_b"), listed("final_answer")], prefix="")
    assert {name: tool.listed for name, tool in found.items()} == {"a_b": "a_b"}
    assert "tool a.b is not offered: a_b is called a_b already" in caplog.text
    assert "tool final_answer is not offered" in caplog.text
    found = offered(tmp_path, [listed("a.b"), listed("a_b")], prefix="", tools={"a.b": {"name": "ab"}})
    assert sorted(found) == ["a_b", "ab"]


def test_annotations_are_believed_only_where_the_file_says_so(tmp_path: Path) -> None:
    listing = [
        listed("look", annotations=hints(read_only_hint=True, destructive_hint=True)),
        listed("put", annotations=hints(idempotent_hint=True)),
        listed("wipe", annotations=hints(destructive_hint=True)),
        listed("plain"),
    ]

    def effects(**section: Any) -> list[tuple[bool, bool, str]]:
        cards = [tool.card for tool in offered(tmp_path, listing, prefix="", **section).values()]
        assert [card.name for card in cards] == ["look", "plain", "put", "wipe"]
        return [(card.read_only, card.idempotent, card.approval) for card in cards]

    nothing = (False, False, "")
    assert effects() == [nothing] * 4
    assert effects(trust=True) == [(True, False, ""), nothing, (False, True, ""), (False, False, "always")]
    said = {"wipe": {"approval": "never", "idempotent": True}}
    assert effects(trust=True, approval="always", tools=said) == [
        (True, False, "always"),
        (False, False, "always"),
        (False, True, "always"),
        (False, True, "never"),
    ]


def test_what_the_file_says_of_a_tool_is_on_its_card(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]}
    said = {"description": "Pays.", "approval": "when: amount > 100", "timeout": 5, "concurrency": 2}
    [tool] = offered(tmp_path, [listed("pay", schema, title="Pay!")], tools={"pay": said}).values()
    card = tool.card
    assert (card.name, card.description, card.input_schema) == ("desk_pay", "Pays.", schema)
    assert (card.approval, card.timeout, tool.concurrency) == ("when: amount > 100", 5.0, 2)
    assert card.labels == {"mcp": "desk"}
    [tool] = offered(tmp_path, [listed("pay", schema, title="Pay!")]).values()
    assert tool.card.description == "Pay!"


def test_a_tool_that_cannot_be_offered_as_demanded_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    listing = [
        listed("pay"),
        listed("broken", {"type": "object", "properties": {"a": {"type": "nonsense"}}}),
        listed("later", execution=types.ToolExecution(task_support="required")),
        listed("secret"),
    ]
    found = offered(tmp_path, listing, allow=["[!s]*"], tools={"pay": {"approval": "when: amount > 100"}})
    assert found == {}
    assert "approval='when: amount > 100' asks about amount" in caplog.text
    assert "tool broken is not offered" in caplog.text
    assert "2025" in caplog.text
    assert "secret" not in caplog.text


def test_results() -> None:
    def text(words: str) -> Any:
        return types.TextContent(text=words)

    def value(*content: Any, **fields: Any) -> Any:
        return value_of(types.CallToolResult(content=[*content], **fields))

    assert value(text("a")) == "a"
    assert value(text("a"), text("b")) == "a\nb"
    assert value() == ""
    assert value(text('{"n": 1}'), structured_content={"n": 1}) == {"n": 1}
    picture = types.ImageContent(data="iVBORw0KGgo=", mime_type="image/png")
    file = File(b"\x89PNG\r\n\x1a\n", media_type="image/png")
    assert value(picture) == file
    assert value(text("a"), picture) == ["a", file]
    assert value(text("1"), picture, structured_content=1) == {"result": 1, "content": [file]}
    link = types.ResourceLink(uri="file:///a.txt", name="a")
    page = types.EmbeddedResource(resource=types.TextResourceContents(uri="file:///a.txt", text="hey"))
    assert value(link, page) == [
        {"uri": "file:///a.txt", "name": "a"},
        {"uri": "file:///a.txt", "text": "hey"},
    ]


def test_a_person_is_asked_for_a_tool_as_the_file_says(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    schema = {"type": "object", "properties": {"title": {"type": "string"}}}
    said = {
        "issue": {"approval": "always", "approval_text": "Open an issue: {title}"},
        "close": {"approval_text": "{no}"},
    }
    found = offered(tmp_path, [listed("issue", schema), listed("close", schema)], tools=said)
    assert {name: tool.card.approval_text for name, tool in found.items()} == {"desk_issue": "Open an issue: {title}"}
    assert "tool close is not offered" in caplog.text

"""Files of MCP servers: the form of other clients, what Cadre adds, and references to secrets."""

import json
from pathlib import Path
from typing import Any

import pytest

from cadre.adapters.mcp.server_file import ServerSpec, read_servers
from cadre.errors import SetupError


def written(folder: Path, **servers: dict[str, Any]) -> str:
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    return str(file)


def read_one(folder: Path, **entry: Any) -> ServerSpec:
    [spec] = read_servers(written(folder, desk=entry))
    return spec


def test_a_file_of_another_client_is_read_as_it_is(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        files={"command": "sh", "args": ["-c", "true"], "env": {"ROOT": "/data"}, "autoApprove": ["read"]},
        web={"type": "http", "url": "https://example.org/mcp", "headers": {"X-Team": "blue"}},
        off={"command": "nobody", "disabled": True},
    )
    files, web = read_servers(file)
    assert (files.name, files.prefix, files.allows("anything")) == ("files", "files_", True)
    endpoint = files.endpoint()
    assert Path(endpoint.command[0]).name == "sh"
    assert endpoint.command[1:] == ["-c", "true"]
    assert (endpoint.env, endpoint.folder) == ({"ROOT": "/data"}, tmp_path)
    assert (web.endpoint().url, web.endpoint().headers) == ("https://example.org/mcp", {"X-Team": "blue"})
    assert web.endpoint().command == []


def test_yaml_and_the_section_for_cadre(tmp_path: Path) -> None:
    file = tmp_path / "servers.yaml"
    file.write_text(
        "mcpServers:\n  desk:\n    command: sh\n    cadre:\n      prefix: d-\n      allow: [get_*, put]\n"
        "      tools: {put: {idempotent: true}}\n"
    )
    [spec] = read_servers(str(file))
    assert spec.prefix == "d-"
    assert [spec.allows(name) for name in ("get_it", "put", "put_all")] == [True, True, False]
    assert spec.entry.cadre.tools["put"].idempotent


def test_a_url_and_a_command() -> None:
    [web] = read_servers("https://user@example.org/mcp")
    assert (web.name, web.prefix, web.entry.url) == ("example.org", "", "https://user@example.org/mcp")
    [started] = read_servers("npx -y 'some server'")
    assert (started.name, started.entry.command, started.entry.args) == ("npx", "npx", ["-y", "some server"])


def test_references_are_resolved_when_it_is_connected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("from-a-file\n")
    spec = read_one(
        tmp_path,
        url="https://${HOST:-example.org}/mcp",
        headers={"A": "Bearer ${TOKEN}", "B": "${file:token}", "C": "${env:TOKEN}"},
    )
    assert "s3cret" not in repr(spec)
    monkeypatch.setenv("TOKEN", "s3cret")
    endpoint = spec.endpoint()
    assert endpoint.url == "https://example.org/mcp"
    assert endpoint.headers == {"A": "Bearer s3cret", "B": "from-a-file", "C": "s3cret"}
    assert endpoint.hide("refused: s3cret, from-a-file") == "refused: ***, ***"
    monkeypatch.setenv("TOKEN", "another")
    assert spec.endpoint().headers["C"] == "another"


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (
            {"command": "sh", "env": {"A": "${UNSET_OF_TESTS}"}},
            "env.A: the variable UNSET_OF_TESTS is not set",
        ),
        ({"command": "sh", "env": {"A": "${file:none}"}}, "env.A: the file none cannot be read"),
        ({"command": "no-such-command"}, "the command 'no-such-command' is not found"),
        ({"command": "sh", "cwd": "nowhere"}, "nowhere"),
        ({}, " url"),
        ({"command": "sh", "url": "http://x"}, " url"),
        ({"type": "sse", "url": "http://x"}, "'sse'"),
        ({"command": "sh", "cadre": {"trusted": True}}, "trusted"),
        ({"command": "sh", "cadre": {"prefix": "a.b"}}, "prefix would be 'a.b'"),
        ({"command": 3}, "mcpServers"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(tmp_path: Path, entry: dict[str, Any], problem: str) -> None:
    with pytest.raises(SetupError) as caught:
        read_one(tmp_path, **entry).endpoint()
    assert problem in str(caught.value)
    assert "desk" in str(caught.value) or "mcpServers" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{}", "{"])
def test_files_that_are_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(text)
    with pytest.raises(SetupError, match=r"mcp\.json"):
        read_servers(str(file))

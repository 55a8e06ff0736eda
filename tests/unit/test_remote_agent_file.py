"""The file of an agent that stands for a remote one."""

from pathlib import Path

import pytest

from cadre.adapters.tool_entries import load_entry
from cadre.deploy.team_file import read_team
from cadre.errors import SetupError, SpecError
from cadre.spec.agent_file import read_agent
from cadre.spec.remote_agent import RemoteSpec

HEAD = "apiVersion: cadre.dev/v1\nkind: RemoteAgent\nmetadata: {name: far}\n"
TEAM = "apiVersion: cadre.dev/v1\nkind: Team\nmetadata: {name: t}\n"


def written(folder: Path, spec: str) -> Path:
    file = folder / "far.yaml"
    file.write_text(f"{HEAD}spec: {spec}\n")
    return file


def test_it_is_an_agent_with_tools_of_its_own(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "{description: Far., url: 'https://far.example/a2a', timeout: 2h, poll: 30s, version: '2',"
        " headers: {Authorization: 'Bearer ${FAR_KEY}'}}",
    )
    spec = read_agent(file)
    assert (spec.kind, spec.limits.seconds, spec.version) == ("remote", 7200.0, "2")
    assert [tool.name for tool in load_entry(str(file))] == spec.tools
    (tmp_path / "team.yaml").write_text(f"{TEAM}spec: {{agents: [far.yaml]}}\n")
    assert read_team(tmp_path).tools == [str(file)]


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ("{description: D.}", "url.*`nats`"),
        ("{description: D., url: 'http://a.b', card: 'http://a.b'}", "url.*`nats`"),
        ("{description: D., url: 'ftp://a.b'}", "spec.url: 'ftp://a.b' is no URL"),
        ("{description: D., url: 'http://a.b', timeout: soon}", "spec.timeout: 'soon' is no length"),
        ("{description: D., url: 'http://a.b', poll: 0}", "remote.poll"),
        (
            "{description: D., url: 'http://a.b', transport: GRPC}",
            "spec.transport: Invalid enum value 'GRPC'",
        ),
        (
            "{description: D., command: x, workspace: ., transport: JSONRPC 0.3}",
            "spec.transport",
        ),
        (
            "{description: D., url: 'http://a.b', tools: [x]}",
            "unknown field `tools`; known keys: description",
        ),
        ("{url: 'http://a.b'}", "missing required field `description`"),
        ("5", "Expected `object`"),
        ("{description: D., command: x, url: 'http://a.b'}", "url.*`nats`"),
        ("{description: D., command: x}", "spec.workspace: name the folder"),
        ("{description: D., command: 'x \"y', workspace: .}", "spec.command: No closing quotation"),
        (
            "{description: D., command: x, workspace: ., headers: {a: b}}",
            "spec.headers",
        ),
        (
            "{description: D., url: 'http://a.b', permissions: allow}",
            "spec.permissions",
        ),
        (
            "{description: D., command: x, workspace: ., permissions: never}",
            "spec.permissions: Invalid enum value 'never'",
        ),
        (
            "{description: D., url: 'http://a.b', nats: {agent: a, owner: b, session: c}}",
            "url.*`nats`",
        ),
        ("{description: D., nats: {agent: a, owner: b}}", "missing required field `session`"),
        (
            "{description: D., nats: {agent: 'a.b', owner: b, session: c}}",
            "spec.nats.agent: 'a.b'",
        ),
        (
            "{description: D., nats: {agent: a, owner: b, session: c}, headers: {a: b}}",
            "spec.headers: .* NATS",
        ),
        ("{description: D., command: x, workspace: ., concurrency: 0}", "spec.concurrency: give 1 or more"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, spec: str, what: str) -> None:
    with pytest.raises(SpecError, match=what.replace("[", r"\[")) as raised:
        read_agent(written(tmp_path, spec))
    assert str(raised.value).startswith(str(tmp_path / "far.yaml"))


def test_a_program_that_is_not_there_is_missed_at_the_start(tmp_path: Path) -> None:
    for spec, what in (
        (
            "{description: D., command: no-such-program, workspace: .}",
            "the command 'no-such-program' is not found",
        ),
        ("{description: D., command: sh, workspace: nowhere}", "workspace: there is no folder"),
        (
            "{description: D., command: sh, workspace: ., environment: {X: '${NOT_SET}'}}",
            "the variable NOT_SET",
        ),
    ):
        with pytest.raises(SetupError, match=what):
            load_entry(str(written(tmp_path, spec)), to_serve=True)


def test_a_program_works_on_several_tasks_where_each_has_its_folder(tmp_path: Path) -> None:
    spec = read_agent(written(tmp_path, "{description: D., command: 'x --fast', workspace: ., folder_per_run: true}"))
    section = spec.section(RemoteSpec)
    assert section is not None
    program = section.program
    assert program is not None
    assert (program.command, program.concurrency, program.permissions) == (["x", "--fast"], 4, "ask")


def test_a_secret_that_is_not_there_is_missed_at_the_start(tmp_path: Path) -> None:
    file = written(tmp_path, "{description: D., url: 'http://a.b', headers: {X: '${NOT_SET_AT_ALL}'}}")
    with pytest.raises(SetupError, match=r"headers\.X: the variable NOT_SET_AT_ALL is not set"):
        load_entry(str(file), to_serve=True)
    assert [tool.name for tool in load_entry(str(file))] == read_agent(file).tools, "manifests need no secret"


def test_it_is_no_file_of_tools(tmp_path: Path) -> None:
    written(tmp_path, "{description: D., url: 'http://a.b'}")
    (tmp_path / "team.yaml").write_text(f"{TEAM}spec: {{agents: [far.yaml], tools: [far.yaml]}}\n")
    with pytest.raises(SpecError, match=r"far\.yaml.*spec\.agents"):
        read_team(tmp_path)

"""Tools of real MCP servers through real executors: called, cancelled, killed in the middle, changed while they run."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cadre.adapters.mcp.server_file import Endpoint
from cadre.local.nats_server import free_port
from cadre.protocol.messages import Origin, ToolResult
from harness.patience import patience, until
from integration.executor_bench import HERE, Bench, kill
from integration.service_bench import failure

SERVER = str(HERE / "mcp_server.py")
OLD_SERVER = str(HERE / "mcp_server_of_2025.py")

pytest.importorskip("mcp")


def stdio(*command: str, **more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [*command], **more}


def server_file(folder: Path, **servers: dict[str, Any]) -> str:
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    return str(file)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def http_server(port: int) -> asyncio.subprocess.Process:
    """A server over HTTP that answers."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, SERVER, "http", str(port), stderr=asyncio.subprocess.DEVNULL
    )

    async def answers() -> bool | None:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return None
        writer.close()
        return True

    await until(answers)
    return process


def texts(result: ToolResult) -> str:
    return json.dumps(result.output)


async def test_tools_of_a_server_over_stdio(bench: Bench) -> None:
    desk = stdio(SERVER, "stdio", env={"TOKEN": "${DESK_TOKEN}"}, cadre={"trust": True, "resources": True})
    await bench.start("--mcp", server_file(bench.folder, desk=desk), DESK_TOKEN="very secret")
    assert (await bench.ask("desk_add", a=1, b=2)).output == {"result": 3}
    assert failure(await bench.ask("desk_add", a="x", b=2)).type == "AgentToolCallError"
    assert "no luck" in failure(await bench.ask("desk_fail")).message
    seen = await bench.ask("desk_look")
    assert seen.output[0] == "a cat"
    about = [one["$file"] for one in seen.output[1:]]
    assert [(one["media_type"], one.get("name", "")) for one in about] == [
        ("image/png", ""),
        ("application/x-data", "data.bin"),
    ]
    note = {"uri": "notes://moon", "text": "about moon"}
    assert (await bench.ask("desk_read_resource", uri="notes://moon")).output == note
    assert "nowhere" in failure(await bench.ask("desk_read_resource", uri="nowhere://moon")).message
    # It has what its file gives to it, and nothing else of the executor's environment.
    environment = (await bench.ask("desk_whoami")).output
    assert environment["TOKEN"] == "very secret"
    assert not [name for name in environment if name.startswith("CADRE_")]
    assert "elicitation" in failure(await bench.ask("desk_ask")).message
    assert (await bench.ask("desk_files_wipe")).output == {"result": "gone"}
    # A tool that comes later is served from then on.
    assert (await bench.ask("desk_grow")).output == {"result": "grown"}
    assert (await bench.ask("desk_late")).output == {"result": "late"}
    assert "very secret" not in await bench.last_words()


@pytest.mark.parametrize("over", ["stdio", "http"])
async def test_a_server_that_is_killed_in_the_middle(bench: Bench, over: str) -> None:
    port = free_port(0, "a server", "nothing")
    web = await http_server(port) if over == "http" else None
    entry = {"url": f"http://127.0.0.1:{port}/mcp"} if web else stdio(SERVER, "stdio")
    await bench.start("--mcp", server_file(bench.folder, desk={**entry, "cadre": {"prefix": "", "trust": True}}))

    calls = {name: bench.staged_call(name) for name in ("spend", "store")}
    for call in calls.values():
        await bench.send(call)
    first = {(visit := await bench.visit()).tool: visit for _ in calls}
    pid = first["spend"].pid
    os.kill(pid, signal.SIGKILL)
    if web is not None:
        await web.wait()
        web = await http_server(port)

    error = failure(await bench.answer(calls["spend"]))
    assert error.type == "Interrupted"
    assert error.message.startswith("outcome unknown: MCP server desk: ")
    again = await bench.visit()
    assert (again.tool, again.call) == ("store", calls["store"].id)
    assert again.pid != pid
    await again.let_go("stored")
    assert (await bench.answer(calls["store"])).output == {"result": "stored"}
    assert {name: bench.effects_of(call) for name, call in calls.items()} == {"spend": 1, "store": 2}
    assert (await bench.ask("add", a=2, b=2)).output == {"result": 4}
    if web is not None:
        await kill(web)


async def test_a_call_waits_for_a_server_that_comes_later(bench: Bench) -> None:
    port = free_port(0, "a server", "nothing")
    await bench.start("--mcp", f"http://127.0.0.1:{port}/mcp")
    asked = asyncio.create_task(bench.ask("add", a=1, b=1))
    web = await http_server(port)
    assert (await asked).output == {"result": 2}
    await kill(web)


async def test_a_call_bears_the_headers_of_its_run(bench: Bench) -> None:
    port = free_port(0, "a server", "nothing")
    web = await http_server(port)
    (bench.folder / "ann.txt").write_text("a token of ann")
    headers = {"Authorization": "Bearer ${file:${run:user}.txt}", "X-Run": "${run:id}/${run:session}"}
    desk = {"url": f"http://127.0.0.1:{port}/mcp", "headers": headers, "cadre": {"prefix": ""}}
    await bench.start("--mcp", server_file(bench.folder, desk=desk))
    call = msgspec.structs.replace(bench.new_call("who_asks"), origin=Origin(user="ann", session="s"))
    await bench.send(call)
    told = (await bench.answer(call)).output
    assert told["headers"]["authorization"] == "Bearer a token of ann"
    assert told["headers"]["x-run"] == f"{call.run}/s"
    assert told["declared"]["elicitation"] == {"form": {}}
    assert "a token of ann" not in await bench.last_words()
    await kill(web)


@pytest.mark.parametrize("how", ["cancelled", "late"])
async def test_a_call_that_nobody_wants_any_more_is_cancelled_at_the_server(bench: Bench, how: str) -> None:
    section = {"prefix": "", "tools": {"hang": {"timeout": 1.0}} if how == "late" else {}}
    old = stdio(OLD_SERVER, env={"FOLDER": str(bench.folder)}, cadre=section)
    await bench.start("--mcp", server_file(bench.folder, old=old))
    call = bench.new_call("hang")
    await bench.send(call)

    async def there(name: str) -> bool | None:
        return (bench.folder / name).exists() or None

    await until(lambda: there("hangs.txt"))
    # It could ask within a call only, which is not served.
    assert "elicitation" not in json.loads((bench.folder / "declared.json").read_text())
    if how == "cancelled":
        await bench.bus.interrupt(call.tree, call.tree)
        assert "cancelled while tool 'hang' was at work" in failure(await bench.answer(call)).message
    else:
        assert "no result within 1 s" in failure(await bench.answer(call)).message
    await until(lambda: there("cancelled.txt"))


async def test_a_server_of_2025(bench: Bench) -> None:
    old = stdio(OLD_SERVER, env={"SUFFIX": "${SUFFIX:-!}"})
    executor = await bench.start("--mcp", server_file(bench.folder, old=old))
    assert (await bench.ask("old_echo", text="hey")).output == "hey!"
    assert "late" in failure(await bench.ask("old_late")).message
    executor.terminate()
    assert await asyncio.wait_for(executor.wait(), patience()) == 0


async def test_progress_is_in_the_log(bench: Bench) -> None:
    await bench.start("--mcp", f"{sys.executable} {SERVER} stdio")
    call = bench.staged_call("wait")
    await bench.send(call)
    await (await bench.visit()).let_go("enough")
    assert (await bench.answer(call)).output == {"result": "enough"}
    assert f'wait {call.id}: 1/3 "one of three"' in await bench.last_words()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_no_server_is_left_behind(bench: Bench, number: signal.Signals) -> None:
    executor = await bench.start("--mcp", f"{sys.executable} {SERVER} stdio", CADRE_DRAIN_SECONDS="0.1")
    call = bench.staged_call("wait")
    await bench.send(call)
    pid = (await bench.visit()).pid
    executor.send_signal(number)
    await asyncio.wait_for(executor.wait(), patience())

    async def gone() -> bool | None:
        return not alive(pid) or None

    await until(gone)


async def test_what_a_server_writes_to_stderr_is_logged_line_by_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With its name and without its secrets, also what it writes last."""
    from cadre.adapters.mcp.session import open_session

    program = "import sys; print('the key is very secret', file=sys.stderr); sys.stderr.write('the last word')"
    command = [sys.executable, "-c", program]
    endpoint = Endpoint("loud", "", {}, command, {}, tmp_path, lambda text: text.replace("very secret", "…"))
    with caplog.at_level("INFO", "cadre.mcp.stderr"), contextlib.suppress(Exception):  # it speaks no MCP
        async with open_session(endpoint):
            pass
    records = [one for one in caplog.records if one.name == "cadre.mcp.stderr"]
    about = {"mcp_server": "loud"}
    assert [(one.getMessage(), vars(one)["fields"]) for one in records] == [
        ("loud: the key is …", about),
        ("loud: the last word", about),
    ]

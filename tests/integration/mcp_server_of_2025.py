"""An MCP server over stdio that knows the protocol of 2025 alone, written without any package."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

NO_METHOD = -32601
ECHO = {
    "name": "echo",
    "description": "Says it again.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}
HANG = {"name": "hang", "inputSchema": {"type": "object"}}
LATE = {"name": "late", "inputSchema": {"type": "object"}}
GARBLED = {"name": "garbled", "inputSchema": {"type": "object"}}
BLOCK = {"name": "block", "inputSchema": {"type": "object"}}


def say(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def listed(params: dict[str, Any], tools: list[dict[str, Any]]) -> dict[str, Any]:
    """One tool on each page."""
    page = int(params.get("cursor", 0))
    following = {"nextCursor": str(page + 1)} if page + 1 < len(tools) else {}
    return {"tools": tools[page : page + 1], **following}


def main() -> None:
    tools = [ECHO, HANG, BLOCK, GARBLED]
    for line in sys.stdin:
        message = json.loads(line)
        params, number = message.get("params", {}), message.get("id")
        match message.get("method"):
            case "initialize":
                if "FOLDER" in os.environ:
                    Path(os.environ["FOLDER"], "declared.json").write_text(json.dumps(params["capabilities"]))
                about = {"name": "old", "version": "1"}
                capabilities = {"tools": {"listChanged": True}}
                say(
                    id=number,
                    result={
                        "protocolVersion": "2025-06-18",
                        "capabilities": capabilities,
                        "serverInfo": about,
                    },
                )
            case "tools/list":
                say(id=number, result=listed(params, tools))
            case "tools/call" if params["name"] == "echo":
                if LATE not in tools:
                    tools.append(LATE)
                    say(method="notifications/tools/list_changed")
                answer = params["arguments"]["text"] + os.environ.get("SUFFIX", "")
                say(id=number, result={"content": [{"type": "text", "text": answer}]})
            case "tools/call" if params["name"] == "late":
                say(id=number, result={"content": [{"type": "text", "text": "late"}], "isError": True})
            case "tools/call" if params["name"] == "garbled":
                result = {"content": [{"type": "text", "text": "a # b"}]}
                told = json.dumps({"jsonrpc": "2.0", "id": number, "result": result})
                sys.stdout.buffer.write(told.encode().replace(b"#", b"\xff") + b"\n")
                sys.stdout.buffer.flush()
            case "tools/call" if params["name"] == "block":
                # As one does that can do one thing at a time: nothing else is answered meanwhile.
                Path(os.environ["FOLDER"], "blocks.txt").touch()
                while not Path(os.environ["FOLDER"], "go").exists():
                    time.sleep(0.05)
                say(id=number, result={"content": [{"type": "text", "text": "went"}]})
            case "tools/call":
                Path(os.environ["FOLDER"], "hangs.txt").touch()
            case "notifications/cancelled":
                Path(os.environ["FOLDER"], "cancelled.txt").touch()
            case _ if number is not None:
                say(id=number, error={"code": NO_METHOD, "message": "no such method"})


if __name__ == "__main__":
    main()

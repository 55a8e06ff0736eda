"""An MCP server over stdio with one tool, which writes to stderr what it likes."""

import os

from mcp.server.mcpserver import MCPServer

os.write(2, b"the server begins\n")
server = MCPServer("muttering")


@server.tool()
def mutter() -> str:
    """Write to stderr."""
    os.write(2, b"half a")
    os.write(2, b" line\nno \xff\xfe text\n" + b"M" * 1_000_000 + b"\nwithout an end")
    return "muttered"


server.run()

"""An MCP server for tests: over its standard streams, or over HTTP on the port that its argument names."""

from __future__ import annotations

import os
import sys
import time

from mcp.server import MCPServer
from mcp.server.mcpserver import Image
from mcp.types import ToolAnnotations

server = MCPServer("for-tests")
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360f8cfc0000003010100"
    "c9fe92ef0000000049454e44ae426082"
)


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool(name="odd name!")
def odd() -> str:
    """A tool whose name no vendor takes."""
    return "odd"


@server.tool()
def fails() -> str:
    """Always fails."""
    raise ValueError("it never works")


@server.tool()
def picture() -> Image:
    """One pixel."""
    return Image(data=PIXEL, format="png")


@server.tool()
def slow() -> str:
    """Takes long."""
    time.sleep(30)
    return "at last"


@server.tool()
def dies() -> str:
    """Ends its process."""
    os._exit(1)


@server.tool()
def secret() -> str:
    """Say what the environment holds."""
    return os.environ.get("FOR_TESTS", "nothing")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run("stdio")

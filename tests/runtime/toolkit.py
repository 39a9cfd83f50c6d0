"""What tests of tools share: a context to call them in, and the result of a call as a model reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shoal.runtime import BUILT_IN, ToolResult
from shoal.runtime._threads import limiter
from shoal.runtime.tools import Tool, ToolContext


def context(
    workdir: Path,
    *,
    regions: tuple[str, ...] = (),
    hidden: Path | None = None,
    read_bytes: int = 256 * 1024,
    list_entries: int = 2_000,
    more: dict[str, Any] | None = None,
) -> ToolContext:
    """Return what a tool works with in *workdir*; call it inside a running event loop."""

    def region(name: str) -> str | None:
        return f'It is already in this prompt, under "## {name}".' if name in regions else None

    return ToolContext(
        "run", workdir.resolve(), hidden, limiter(4), read_bytes, list_entries, region=region, **(more or {})
    )


async def called(tool: str | Tool, workdir: Path, /, *, given: dict[str, Any] | None = None, **args: Any) -> ToolResult:
    """Call *tool* in *workdir*; *given* goes to `context`."""
    found = BUILT_IN[tool] if isinstance(tool, str) else tool
    assert found.call is not None
    return await found.call(context(workdir, **(given or {})), args)


def read(result: ToolResult) -> str:
    """Return what a model reads of *result*."""
    return f"{result.text}\n{result.note}" if result.note else str(result.text)

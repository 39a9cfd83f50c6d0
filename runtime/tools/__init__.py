"""Tools: typed functions that a model may call, behind gates that stop a call before it has an effect."""

from __future__ import annotations

from collections.abc import Mapping

from shoal.runtime.tools._files import FILE_TOOLS
from shoal.runtime.tools._gates import Verdict, compiled, judge, parse_json, violations
from shoal.runtime.tools._listing import shown_name
from shoal.runtime.tools._people import PEOPLE_TOOLS, QUESTIONS
from shoal.runtime.tools._permissions import Permissions
from shoal.runtime.tools._tool import (
    Effects,
    FunctionTool,
    Tool,
    ToolContext,
    ToolResult,
    as_tool,
    schema_bytes,
    source_digest,
    tool,
)
from shoal.runtime.tools._window import FAN_OUT, RUN_TOOLS, SUBMIT_OUTPUT, WINDOW_TOOLS

BUILT_IN: Mapping[str, Tool] = {each.name: each for each in (*FILE_TOOLS, *WINDOW_TOOLS, *RUN_TOOLS, *PEOPLE_TOOLS)}
"""Every built-in tool, by name."""

__all__ = [
    "BUILT_IN",
    "FAN_OUT",
    "QUESTIONS",
    "SUBMIT_OUTPUT",
    "Effects",
    "FunctionTool",
    "Permissions",
    "Tool",
    "ToolContext",
    "ToolResult",
    "Verdict",
    "as_tool",
    "compiled",
    "judge",
    "parse_json",
    "schema_bytes",
    "shown_name",
    "source_digest",
    "tool",
    "violations",
]

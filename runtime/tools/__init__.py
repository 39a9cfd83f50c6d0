"""Tools: typed functions that a model may call, behind gates that stop a call before it has an effect."""

from __future__ import annotations

from collections.abc import Mapping

from shoal.runtime.tools._agents import AGENT_TOOLS, AGENTS
from shoal.runtime.tools._agents import CHECK as AGENT_CHECK
from shoal.runtime.tools._agents import KILL as AGENT_KILL
from shoal.runtime.tools._agents import SEND as AGENT_SEND
from shoal.runtime.tools._agents import SPAWN as AGENT_SPAWN
from shoal.runtime.tools._agents import WAIT as AGENT_WAIT
from shoal.runtime.tools._environment import environment, is_credential
from shoal.runtime.tools._files import FILE_TOOLS, read_attachment
from shoal.runtime.tools._function import FunctionTool, as_result, as_tool, source_digest, tool
from shoal.runtime.tools._gates import Verdict, compiled, judge, parse_json, violations
from shoal.runtime.tools._grants import Grants
from shoal.runtime.tools._line_gate import LineRules, judge_line, with_line
from shoal.runtime.tools._lines import command_problem, keys_of
from shoal.runtime.tools._listing import shown_name
from shoal.runtime.tools._looking import READ_ONLY_GIT
from shoal.runtime.tools._machine import MACHINE_TOOLS
from shoal.runtime.tools._memory import MEMORY, MEMORY_TOOLS
from shoal.runtime.tools._memory_folder import FolderMemory
from shoal.runtime.tools._notes import Memory, Note, NoteRefused, summary
from shoal.runtime.tools._people import PEOPLE_TOOLS, QUESTIONS
from shoal.runtime.tools._permissions import Permissions
from shoal.runtime.tools._process import hunt, kill_lines, shell_path
from shoal.runtime.tools._read_paths import ReadPaths, ungranted
from shoal.runtime.tools._shell import SHELL, SHELL_TOOL, failure_of, mark_of, run_in_shell, shown
from shoal.runtime.tools._tool import Effects, RunFacts, Shell, Tool, ToolContext, ToolResult, schema_bytes
from shoal.runtime.tools._window import CONTEXT_ATTACH, FAN_OUT, LOAD_TOOLS, RUN_TOOLS, SUBMIT_OUTPUT, WINDOW_TOOLS
from shoal.runtime.tools._writing import WRITING_TOOLS

BUILT_IN: Mapping[str, Tool] = {
    each.name: each
    for each in (
        *FILE_TOOLS,
        *WRITING_TOOLS,
        SHELL_TOOL,
        *MACHINE_TOOLS,
        *WINDOW_TOOLS,
        *RUN_TOOLS,
        *AGENT_TOOLS,
        *PEOPLE_TOOLS,
        *MEMORY_TOOLS,
    )
}
"""Every built-in tool, by name."""

__all__ = [
    "AGENTS",
    "AGENT_CHECK",
    "AGENT_KILL",
    "AGENT_SEND",
    "AGENT_SPAWN",
    "AGENT_WAIT",
    "BUILT_IN",
    "CONTEXT_ATTACH",
    "FAN_OUT",
    "LOAD_TOOLS",
    "MEMORY",
    "QUESTIONS",
    "READ_ONLY_GIT",
    "SHELL",
    "SHELL_TOOL",
    "SUBMIT_OUTPUT",
    "Effects",
    "FolderMemory",
    "FunctionTool",
    "Grants",
    "LineRules",
    "Memory",
    "Note",
    "NoteRefused",
    "Permissions",
    "ReadPaths",
    "RunFacts",
    "Shell",
    "Tool",
    "ToolContext",
    "ToolResult",
    "Verdict",
    "as_result",
    "as_tool",
    "command_problem",
    "compiled",
    "environment",
    "failure_of",
    "hunt",
    "is_credential",
    "judge",
    "judge_line",
    "keys_of",
    "kill_lines",
    "mark_of",
    "parse_json",
    "read_attachment",
    "run_in_shell",
    "schema_bytes",
    "shell_path",
    "shown",
    "shown_name",
    "source_digest",
    "summary",
    "tool",
    "ungranted",
    "violations",
    "with_line",
]

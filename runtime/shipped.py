"""What a blueprint ships beside its file: the scripts that it names, and its tools."""

from shoal.runtime._own_scripts import RUN, VALIDATE, Use, read_script, uses_of
from shoal.runtime._script_tools import ToolFile, script_tool, tool_files

__all__ = ["RUN", "VALIDATE", "ToolFile", "Use", "read_script", "script_tool", "tool_files", "uses_of"]

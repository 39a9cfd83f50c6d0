"""Scripts: Python that a blueprint ships, run in a sandbox without files, network or a clock of its own."""

from shoal.runtime.scripts._sandbox import Sandbox, Script, ScriptError, ScriptLimits

__all__ = ["Sandbox", "Script", "ScriptError", "ScriptLimits"]

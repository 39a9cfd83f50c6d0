"""Scripts: Python that a blueprint ships, run in a sandbox without files, network or a clock of its own."""

from shoal.runtime.scripts._sandbox import Plain, Sandbox, Script, ScriptError, ScriptLimits

__all__ = ["Plain", "Sandbox", "Script", "ScriptError", "ScriptLimits"]

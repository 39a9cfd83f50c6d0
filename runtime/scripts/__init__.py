"""Scripts: Python that a blueprint ships, run in a sandbox without files, network or a clock of its own."""

from shoal.runtime.scripts._sandbox import Plain, Sandbox, Script, ScriptError, ScriptLimits
from shoal.runtime.scripts._trusted import MARK, Functions

__all__ = ["MARK", "Functions", "Plain", "Sandbox", "Script", "ScriptError", "ScriptLimits"]

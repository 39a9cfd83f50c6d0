"""A blueprint made ready to run, and its stages: what all runs of one definition share."""

from shoal.runtime.program._program import MOST_SHARED_BYTES, Program, recorded
from shoal.runtime.program._stage import StageProgram, loadable, loaded, offer, with_own
from shoal.runtime.program._tools import by_any_name, shipped_names, shown_only, warn_of_schemas

__all__ = [
    "MOST_SHARED_BYTES",
    "Program",
    "StageProgram",
    "by_any_name",
    "loadable",
    "loaded",
    "offer",
    "recorded",
    "shipped_names",
    "shown_only",
    "warn_of_schemas",
    "with_own",
]

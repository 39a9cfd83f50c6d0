"""The ledger: what each region, each stage and each stage transition used; the only sum of tokens and cost."""

from shoal.runtime.ledger._ledger import Ledger, ledger_of
from shoal.runtime.ledger._rows import NO_USAGE, RegionMove, RegionRow, StageRow, Tally, TransitionRow, plain_usage
from shoal.runtime.ledger._shown import BEFORE_STAGES

__all__ = [
    "BEFORE_STAGES",
    "NO_USAGE",
    "Ledger",
    "RegionMove",
    "RegionRow",
    "StageRow",
    "Tally",
    "TransitionRow",
    "ledger_of",
    "plain_usage",
]

"""What an estimate is worth: learnt from what providers bill."""

from __future__ import annotations

from typing import final

import msgspec

_WEIGHT = 0.3
_FEWEST_TOKENS = 100
"""Below this many tokens a ratio says more about framing than about text."""
_LOWEST, _HIGHEST = 0.25, 4.0


@final
class Calibration(msgspec.Struct, frozen=True, gc=False):
    """How estimates of one model have to be corrected.

    Args:
        ratio: What one estimated token of a region really costs.
        seen: How many measurements it comes from.
    """

    ratio: float = 1.0
    seen: int = 0

    def corrected(self, region_tokens: int, base_tokens: int) -> int:
        """Return what a request costs whose regions are estimated at *region_tokens*.

        Args:
            region_tokens: Estimate of what the regions show.
            base_tokens: Estimate of what is in no region: tool schemas and framing.
        """
        return round(region_tokens * self.ratio) + base_tokens

    def observed(
        self, region_tokens: int, base_tokens: int, measured_tokens: int, *, exact: bool = False
    ) -> Calibration:
        """Return the calibration after a request was measured.

        The first measurement counts in full, later ones as an exponentially weighted average.

        Args:
            region_tokens: Estimate of the regions in that request.
            base_tokens: Estimate of its tool schemas and framing.
            measured_tokens: What the provider counted or billed for all of it.
            exact: It is the vendor's own count of what is about to be sent, and replaces what was known.
        """
        if region_tokens < _FEWEST_TOKENS:
            return self
        now = min(_HIGHEST, max(_LOWEST, (measured_tokens - base_tokens) / region_tokens))
        ratio = now if exact or not self.seen else self.ratio + _WEIGHT * (now - self.ratio)
        return Calibration(ratio, self.seen + 1)

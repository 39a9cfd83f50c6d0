"""How the lanes serve runs: what a blueprint says, else the host, else what ships."""

from __future__ import annotations

from shoal.blueprints import Lanes, LaneSettings
from shoal.runtime.events import Lane

COMPACTION = LaneSettings(
    max_tokens=2_000,
    timeout_s=60.0,
    retries=2,
    temperature=0.2,
    prompt="Summarise the material below for somebody who goes on with the work and will not see it again. Keep names, "
    "numbers, paths, decisions and open questions. Write the summary only.",
)
TITLING = LaneSettings(
    max_tokens=512,
    timeout_s=60.0,
    retries=1,
    prompt="Give the task below a title of at most eight words. Write the title only, on one line.",
)
REFRESH = LaneSettings(timeout_s=30.0, retries=0)

_SHIPPED = Lanes(COMPACTION, TITLING, REFRESH)


def settings_of(lane: Lane, own: Lanes, host: Lanes) -> LaneSettings:
    """Return how *lane* serves a run whose blueprint says *own*, in a swarm that says *host*."""
    said: list[LaneSettings] = [getattr(lanes, lane) for lanes in (own, host, _SHIPPED)]
    return _over(said[0], _over(said[1], said[2]))


def _over(own: LaneSettings, default: LaneSettings) -> LaneSettings:
    """Return *own* with what it leaves out taken from *default*."""
    return LaneSettings(
        own.model or default.model,
        own.max_tokens or default.max_tokens,
        own.timeout_s or default.timeout_s,
        default.retries if own.retries is None else own.retries,
        default.temperature if own.temperature is None else own.temperature,
        own.prompt or default.prompt,
    )

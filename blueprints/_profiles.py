"""The named sets of observation knobs, and how layers of knobs become one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any

from shoal.blueprints._model import Observations

OBSERVATION_PROFILES: Mapping[str, Observations] = MappingProxyType(
    {
        "coding": Observations("coding", 10, 400_000, 600_000, 4, 0, 10),
        "chat": Observations("chat", 2, 40_000, 80_000, 2, 12, 2),
        "eval": Observations("eval", 4, 60_000, 100_000, 2, 0, 4),
    }
)
"""Every knob of each profile; `forget_after_turns` 0 is off."""


def resolve_observations(*layers: Observations | None) -> Observations:
    """Return the knobs that *layers*, the widest first, come to: the last that writes a knob sets it.

    What no layer writes is the profile's; without a profile that of `coding`. No field of the result is `None`.
    """
    set_: dict[str, Any] = {}
    for layer in layers:
        if layer is not None:
            values = {field.name: getattr(layer, field.name) for field in fields(layer)}
            set_ |= {name: value for name, value in values.items() if value is not None}
    profile = OBSERVATION_PROFILES[str(set_.get("profile", "coding"))]
    return Observations(**{field.name: set_.get(field.name, getattr(profile, field.name)) for field in fields(profile)})

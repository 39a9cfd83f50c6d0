"""What each model can do and costs, as data."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache
from importlib import resources
from typing import Any, Literal, final

import msgspec

Vendor = Literal["anthropic", "openai", "gemini", "compatible"]

EFFORTS = ("low", "medium", "high", "xhigh", "max")


@final
@dataclass(frozen=True, slots=True)
class Price:
    """USD per million tokens.

    Args:
        input: Tokens that no cache knew.
        output: Tokens of the reply.
        read: Tokens read from the cache.
        write: Tokens written to the cache, by how long they live; an empty one makes writes free.
        long_from: A prompt of more tokens than this costs *long_factor* times as much; `None` for no such limit.
        long_factor: See *long_from*.
    """

    input: Decimal
    output: Decimal
    read: Decimal
    write: Mapping[str, Decimal] = field(default_factory=dict[str, Decimal])
    long_from: int | None = None
    long_factor: Decimal = Decimal(1)

    def cost_usd(self, *, uncached: int, read: int, writes: Mapping[str, int], output: int) -> Decimal:
        """Return what a reply costs whose tokens fell into these buckets."""
        total = uncached + read + sum(writes.values())
        factor = self.long_factor if self.long_from is not None and total > self.long_from else Decimal(1)
        written = sum((self.write.get(ttl, self.input) * tokens for ttl, tokens in writes.items()), Decimal(0))
        whole = self.input * uncached + self.read * read + written + self.output * output
        return whole * factor / 1_000_000


@final
@dataclass(frozen=True, slots=True)
class Model:
    """A row of `models.toml`; what its keys mean is written there."""

    name: str
    vendor: Vendor
    window: int
    max_output: int
    max_input: int | None = None
    cache_min: int = 0
    price: Price | None = None
    thinking: tuple[str, ...] = ()
    effort: str = "high"
    disabled_upto: str = "max"
    forced_tool: bool = False
    prefill: bool = False
    sampling: bool = False
    preserved: bool = False
    mid_system: bool = False
    clips: bool = True
    keeps: bool = True
    image_edge: int = 2576
    image_tokens: int = 4784
    reasoning: bool = False
    breakpoints: bool = False
    signatures: bool = False
    schema_with_tools: bool = False

    @property
    def prompt_limit(self) -> int:
        """The longest prompt in tokens."""
        return self.window if self.max_input is None else self.max_input


@cache
def shipped() -> Mapping[str, Model]:
    """Return the models that this package knows, by name."""
    text = (resources.files("shoal.testing.wire") / "models.toml").read_text("utf-8")
    return {name: _row(name, row) for name, row in tomllib.loads(text)["models"].items()}


def models_from(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Model]:
    """Return the models of *rows*, which have the keys of `models.toml`.

    A row with `like` starts from the shipped model of that name, so that a test changes only what it is about.

    Raises:
        msgspec.ValidationError: A key or a value is wrong.
        KeyError: `like` names no model.
    """
    made: dict[str, Model] = {}
    for name, row in rows.items():
        keys = dict(row)
        like = keys.pop("like", None)
        if like is None:
            made[name] = _row(name, keys)
            continue
        base = shipped()[like]
        changed = _row(name, {"vendor": base.vendor, "window": base.window, "max_output": base.max_output, **keys})
        made[name] = replace(base, name=name, **{key: getattr(changed, key) for key in keys})
    return made


def _row(name: str, row: Mapping[str, Any]) -> Model:
    unknown = set(row) - set(Model.__dataclass_fields__)
    if unknown:
        raise msgspec.ValidationError(f"model {name!r} has no keys {sorted(unknown)!r}; see `models.toml`")
    return msgspec.convert({"name": name, **row}, Model)

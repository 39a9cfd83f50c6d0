"""What is known of a model: its window, what it takes, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Literal, TypeAlias, final

from shoal.providers._intake import FLAT, Intake
from shoal.providers._values._reply import Usage

Bucket: TypeAlias = Literal["uncached", "cache_read", "cache_write", "cache_write_long", "output"]
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""The levels of effort that a model may take, lowest first."""


@final
@dataclass(frozen=True, slots=True)
class Price:
    """What a model costs, in USD per million tokens.

    Args:
        input: Uncached input.
        output: Output, reasoning included.
        cache_read: Input read from a cache; `None` bills it as *input*.
        cache_write: Input written with the shortest lifetime; `None` bills it as *input*.
        cache_write_long: Input written with a longer lifetime; `None` bills it as *cache_write*.
        source: Where the price comes from, with its date.
        long_from_tokens: A longer prompt is billed at *long_factor* times all of these; `None` for no such rule.
        long_factor: See there.
        long_output_factor: The factor of the output, where it is another; `None` for the same.
    """

    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_long: Decimal | None = None
    source: str = ""
    long_from_tokens: int | None = None
    long_factor: Decimal = Decimal(1)
    long_output_factor: Decimal | None = None

    def per_token(self, bucket: Bucket, *, prompt_tokens: int = 0) -> Decimal:
        """Return USD for one token of *bucket*.

        Args:
            bucket: What kind of token.
            prompt_tokens: Everything that was sent: some vendors bill long prompts at a multiple.
        """
        write = self.input if self.cache_write is None else self.cache_write
        factor = self.long_factor
        match bucket:
            case "uncached":
                million = self.input
            case "cache_read":
                million = self.input if self.cache_read is None else self.cache_read
            case "cache_write":
                million = write
            case "cache_write_long":
                million = write if self.cache_write_long is None else self.cache_write_long
            case _:
                million = self.output
                factor = factor if self.long_output_factor is None else self.long_output_factor
        is_long = self.long_from_tokens is not None and prompt_tokens > self.long_from_tokens
        return million * (factor if is_long else 1) / 1_000_000

    def cost(self, usage: Usage) -> Decimal:
        """Return what *usage* costs in USD, exact to the last decimal."""
        sent = usage.input
        return (
            usage.uncached * self.per_token("uncached", prompt_tokens=sent)
            + usage.cache_read * self.per_token("cache_read", prompt_tokens=sent)
            + usage.cache_write * self.per_token("cache_write", prompt_tokens=sent)
            + usage.cache_write_long * self.per_token("cache_write_long", prompt_tokens=sent)
            + usage.output * self.per_token("output", prompt_tokens=sent)
        )


@final
@dataclass(frozen=True, slots=True)
class ModelProfile:
    """What is known of one model.

    Args:
        model: Its name.
        window_tokens: Input and output together, 1 or more.
        max_output_tokens: The longest reply.
        price: `None` where the price is unknown, which is not zero.
        input_types: Mime patterns that it takes.
        min_cacheable_tokens: Shortest prefix that a cache takes; 0 where it has no minimum.
        cache: How its cache works: `none`, `prefix` (automatic, exact prefix) or `markers`.
        append_only: A replayed thinking block binds every byte before it.
        temperature: It takes a temperature and other parameters of sampling.
        tokenizer: Who counts its text locally: `estimate`, or `tiktoken:ENCODING`.
        window_source: Where the window's number comes from, for messages.
        window_key: The setting that changes it.
        forced_tools: It can be made to call a tool.
        structured_output: It takes a form of the reply.
        thinking: How its thinking can be set: `adaptive`, `enabled` (with a budget), `disabled`, `between_tools`,
            `level`. `None` where that is unknown, which sends what is asked for.
        efforts: The levels of effort that it takes, lowest first; `None` where they are unknown.
        mid_system: It takes system messages in the middle of a conversation.
        turn_system: It takes system messages that count for one turn only.
        counts_parts: Whose rule counts stored parts: `claude`, `claude-small`, `gpt`, `gemini`, or `flat`.
        sources: Which keys of its row somebody gave, each with who did; the rest is the default.
    """

    model: str
    window_tokens: int = 8192
    max_output_tokens: int = 4096
    price: Price | None = None
    input_types: tuple[str, ...] = ("text/*",)
    min_cacheable_tokens: int = 0
    cache: Literal["none", "prefix", "markers"] = "none"
    append_only: bool = False
    temperature: bool = True
    tokenizer: str = "estimate"
    window_source: str = "the default for an unknown model"
    window_key: str = ""
    forced_tools: bool = True
    structured_output: bool = True
    thinking: tuple[str, ...] | None = None
    efforts: tuple[str, ...] | None = None
    mid_system: bool = False
    turn_system: bool = False
    counts_parts: str = FLAT
    sources: tuple[tuple[str, str], ...] = field(default=(), compare=False, repr=False)

    def told(self, source: str, *keys: str) -> ModelProfile:
        """Return it with *source* as the one who gave *keys*, which are those of its row."""
        return replace(self, sources=tuple({**dict(self.sources), **dict.fromkeys(keys, source)}.items()))

    @property
    def intake(self) -> Intake:
        """What it takes beside text, and how it counts that."""
        return Intake(self.input_types, self.counts_parts)


@final
@dataclass(frozen=True, slots=True)
class TokenCount:
    """What a request costs.

    Args:
        tokens: The count, 0 or more.
        how: Who counted: `estimate`, `tiktoken:ENCODING`, `server` or `vendor`.
        exact: The count is the vendor's own.
    """

    tokens: int
    how: str
    exact: bool = field(default=False)

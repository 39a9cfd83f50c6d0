"""What goes to a provider and what comes back: the vendor-neutral values of one exchange.

A request is built from parts that stay the same object for as long as they stay the same text: system blocks,
segments of messages, a tool set. Each has room for what an encoder made of it (`_wire`), so a part is encoded once
and then travels as the same bytes in every later request.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import count
from operator import attrgetter
from typing import Any, Literal, Protocol, TypeAlias, final

import msgspec

from shoal.providers._intake import FLAT, Intake
from shoal.providers._text import Text, join

Purpose: TypeAlias = Literal["stage", "routing", "compaction", "titling"]
Volatility: TypeAlias = Literal["stable", "grows", "rewritten"]
Reach: TypeAlias = Literal["any", "run", "stage"]
Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")
Bucket: TypeAlias = Literal["uncached", "cache_read", "cache_write", "cache_write_long", "output"]
Finish: TypeAlias = Literal["stop", "length", "tool_calls", "refusal", "error"]


def digest(*pieces: bytes) -> bytes:
    """Return 16 bytes that stand for *pieces*, in order; no two lists of pieces share one."""
    whole = hashlib.blake2b(digest_size=16)
    for piece in pieces:
        whole.update(len(piece).to_bytes(4, "little"))
        whole.update(piece)
    return whole.digest()


def _bytes(text: str) -> bytes:
    """Return the bytes of *text*, of a lone surrogate too: names may come from anywhere."""
    return text.encode("utf-8", "surrogatepass")


def _forget(part: msgspec.Struct) -> None:
    """Have *part*, made from another by `replace`, forget what was made of that one."""
    msgspec.structs.force_setattr(part, "_digest", b"")
    msgspec.structs.force_setattr(part, "_wire", None)


# --- requests


@final
class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """One call that a model asked for.

    Args:
        call_id: Shoal's own id, unique in its run; an encoder maps it to what its vendor takes.
        name: The tool, as the request named it.
        arguments: The JSON source of the arguments object, as the model wrote it; may be malformed.
        vendor_id: The vendor's own id, sent back to that vendor where it insists; empty where it gave none.
    """

    call_id: str
    name: str
    arguments: Text
    vendor_id: str = ""


@final
class ProviderState(msgspec.Struct, frozen=True, gc=False):
    """What a vendor wants back byte for byte: thinking, signatures, encrypted reasoning, item ids.

    Args:
        provider: Name of the provider that made it.
        model: The model that made it; it is sent back to no other.
        data: JSON that only the encoder of one API reads; it names that API, so no other one sends it.
    """

    provider: str
    model: str
    data: bytes


@final
class Blob(msgspec.Struct, frozen=True, gc=False, eq=False):
    """A stored part: an image, a document or other bytes that stand in a message behind its text.

    A model that takes its type is sent the bytes behind the stand-in line, any other the stand-in line alone. The bytes
    are read when a request is written and kept by nobody, so they have to stay the same.

    Args:
        mime: What the bytes are, by their own first bytes (`sniff`) and not by a file's name, such as `image/png`.
        size: How many bytes, 0 or more.
        digest: 16 bytes or more that stand for the bytes.
        load: Returns the bytes. Called in a worker thread.
        stand_in: The line that names it where the bytes are not sent, such as `[image/png 64x64, 2 KB] hero.png`.
        name: The name of its file; empty where it has none.
        text: What it says, of a part that is text by its bytes: sent as text to every model.
        side_px: The longer side of an image in pixels; `None` where it is unknown or no image.
        width_px: Width of an image; `None` where it is unknown.
        height_px: Height of an image; `None` where it is unknown.
        pages: Pages of a document; `None` where they are unknown.
        seconds: How long a recording lasts; `None` where it is unknown.
    """

    mime: str
    size: int
    digest: bytes
    load: Callable[[], bytes]
    stand_in: Text
    name: str = ""
    text: Text | None = None
    side_px: int | None = None
    width_px: int | None = None
    height_px: int | None = None
    pages: int | None = None
    seconds: float | None = None


_next_number = count(1).__next__
_PLAIN: Mapping[Role, bytes] = {role: f"{role}|||0".encode() for role in ROLES}


@final
class Message(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One message of a conversation.

    Args:
        role: Who speaks. A `tool` message answers one call.
        texts: What is said, n pieces in order; joined they are the text.
        calls: Of an assistant: the tools it asked for, in its order.
        call_id: Of a tool message: the call that it answers.
        tool_name: Of a tool message: the tool that answered.
        is_error: Of a tool message: the call failed.
        state: Of an assistant: what its vendor wants back; `None` where there is nothing.
        blobs: Stored parts that stand behind its text; of an assistant: what it made.
        turn_scoped: Of a system message: it counts until the next user message only, and stays in its place. Models
            that know no such messages take it for one that counts from then on.
    """

    role: Role
    texts: tuple[Text, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    tool_name: str = ""
    is_error: bool = False
    state: ProviderState | None = None
    blobs: tuple[Blob, ...] = ()
    turn_scoped: bool = False
    _digest: bytes = b""
    _wire: tuple[Any, Any] | None = None
    _number: int = 0

    def __post_init__(self) -> None:
        if self._digest or self._wire is not None or self._number:
            _forget(self)
            msgspec.structs.force_setattr(self, "_number", 0)

    @property
    def text(self) -> str:
        """What is said, as one string."""
        return join(self.texts)

    @property
    def number(self) -> int:
        """A number, 1 or more, that no other message of this process has; it says nothing of order."""
        if not self._number:
            msgspec.structs.force_setattr(self, "_number", _next_number())
        return self._number

    @property
    def digest(self) -> bytes:
        """16 bytes that stand for everything in this message."""
        if not self._digest:
            plain = not (self.call_id or self.tool_name or self.is_error)
            pieces = [
                _PLAIN[self.role] if plain else _bytes(f"{self.role}|{self.call_id}|{self.tool_name}|{self.is_error:d}")
            ]
            pieces += [text.digest for text in self.texts]
            if self.calls:
                pieces += [_digest_of(call) for call in self.calls]
            pieces.append(b"" if self.state is None else self.state.data)
            if self.blobs:
                pieces += [digest(blob.digest, blob.stand_in.digest) for blob in self.blobs]
            if self.turn_scoped:
                pieces.append(b"turn")
            msgspec.structs.force_setattr(self, "_digest", digest(*pieces))
        return self._digest


def _digest_of(call: ToolCall) -> bytes:
    made = (_bytes(call.call_id), _bytes(call.name), call.arguments.digest)
    return digest(*made, _bytes(call.vendor_id)) if call.vendor_id else digest(*made)


known_number = attrgetter("_number")
"""Returns the `Message.number` of a message, or 0 where nobody has asked for it yet."""


def numbers_of(messages: Iterable[Message]) -> tuple[int, ...]:
    """Return the `Message.number` of each of *messages*."""
    return tuple([m._number or m.number for m in messages])  # pyright: ignore[reportPrivateUsage] # a call each is slow


@final
class Segment(msgspec.Struct, frozen=True, gc=False, eq=False):
    """A run of messages that stays together: whole turn groups, oldest first.

    Args:
        owner: The region (or component) that the messages belong to.
        messages: The messages, 1 or more.
        tokens: Estimate of what they cost, 0 or more.
        closed: No message will be added; only the last segment of a conversation is open.
    """

    owner: str
    messages: tuple[Message, ...]
    tokens: int
    closed: bool = False
    _digest: bytes = b""
    _wire: tuple[Any, Any] | None = None

    def __post_init__(self) -> None:
        if self._digest or self._wire is not None:
            _forget(self)

    @property
    def digest(self) -> bytes:
        """16 bytes that stand for the messages."""
        if not self._digest:
            made = digest(*[message.digest for message in self.messages])
            msgspec.structs.force_setattr(self, "_digest", made)
        return self._digest


@final
class Block(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One block of the system section.

    Args:
        owner: The region or component that it belongs to.
        texts: What it says, n pieces in order; joined they are the text.
        tokens: Estimate of what it costs, 0 or more.
        volatility: How its content moves; decides its place and where cache markers go.
        cacheable: False ends the prefix that a cache may hold.
        frozen: Its bytes will not change while it is in the window.
        reach: Where the same text may stand: in any run, in this run only, or in this stage only.
    """

    owner: str
    texts: tuple[Text, ...]
    tokens: int
    volatility: Volatility = "rewritten"
    cacheable: bool = True
    frozen: bool = False
    reach: Reach = "any"
    _digest: bytes = b""
    _wire: tuple[Any, Any] | None = None

    def __post_init__(self) -> None:
        if self._digest or self._wire is not None:
            _forget(self)

    @property
    def text(self) -> str:
        """What it says, as one string."""
        return join(self.texts)

    @property
    def digest(self) -> bytes:
        """16 bytes that stand for the text."""
        if not self._digest:
            made = digest(*[text.digest for text in self.texts])
            msgspec.structs.force_setattr(self, "_digest", made)
        return self._digest


@final
class ToolSpec(msgspec.Struct, frozen=True, gc=False):
    """A tool as a model sees it.

    Args:
        name: Its name.
        description: What it does, for the model.
        schema: JSON schema of the arguments, an object schema, as JSON source with sorted keys.
    """

    name: str
    description: str
    schema: bytes


@final
class ToolSet(msgspec.Struct, frozen=True, gc=False, eq=False):
    """The tools of a request, sorted by name. Build it once a stage and share it: it keeps its encoded form.

    Args:
        specs: The tools, n, sorted by name; those loaded later stand behind them.
        tokens: Estimate of what the schemas cost, 0 or more.
    """

    specs: tuple[ToolSpec, ...] = ()
    tokens: int = 0
    _digest: bytes = b""
    _wire: tuple[Any, Any] | None = None

    def __post_init__(self) -> None:
        if self._digest or self._wire is not None:
            _forget(self)

    @property
    def digest(self) -> bytes:
        """16 bytes that stand for all names, descriptions and schemas."""
        if not self._digest:
            made = digest(*[piece for s in self.specs for piece in (_bytes(s.name), _bytes(s.description), s.schema)])
            msgspec.structs.force_setattr(self, "_digest", made)
        return self._digest


NO_TOOLS = ToolSet()


@final
class OutputFormat(msgspec.Struct, frozen=True, gc=False):
    """The form of a reply: JSON that fits a schema.

    Args:
        name: What it is called, 1 to 64 letters, digits, `_` and `-`.
        schema: The JSON schema, an object schema, as JSON source with sorted keys.
    """

    name: str
    schema: bytes


@final
class PolicyStep(msgspec.Struct, frozen=True):
    """One step of what the offline provider does in a stage; exactly one of *call*, *extract*, *say*, *route* is set.

    Args:
        call: A tool to call.
        args: Its arguments; strings in it are templates.
        for_each: Where the items of repeated calls come from: `result(STEP)` or `region(NAME)`.
        extract: A region to take sentences from.
        sentences: How many sentences, 1 or more.
        into: The tool whose one text argument takes them; `None` says them.
        say: A template to answer with.
        route: `overlap`, or the stage to choose where the model is asked for one.
        pages: How often *call* is made at most: a result that ends in a line `[continue with NAME=VALUE]` has the
            step repeated with that argument. 1 or more.
    """

    call: str | None = None
    args: Mapping[str, Any] = {}
    for_each: str | None = None
    extract: str | None = None
    sentences: int = 3
    into: str | None = None
    say: str | None = None
    route: str | None = None
    pages: int = 1


@final
class Situation(msgspec.Struct, frozen=True):
    """Where in its blueprint a request stands; for providers that follow a policy instead of a model.

    Args:
        blueprint: Name of the blueprint.
        stage: Name of the stage.
        iteration: How many requests of this visit of the stage were answered before this one.
        policy: The stage's steps; `None` where the blueprint gives none.
        regions: Text of each region that is not empty and that the stage sees, by name.
        task: The run's task; empty where it has none.
        output_tool: The tool that takes the output which the stage owes; `None` where it owes none.
        choices: Of a routing question: the stages that may be named, with their hints.
    """

    blueprint: str
    stage: str
    iteration: int
    policy: tuple[PolicyStep, ...] | None
    regions: Mapping[str, str]
    task: str = ""
    output_tool: str | None = None
    choices: Mapping[str, str] = {}


@final
class Trace(msgspec.Struct, frozen=True):
    """Which span a request belongs to, for servers that may know.

    Args:
        traceparent: The header. Source: W3C Trace Context, level 2, section 3.2.
        hosts: Hosts that get it, lower case and without ports; all others learn nothing.
    """

    traceparent: str
    hosts: frozenset[str]


@final
class Request(msgspec.Struct, frozen=True):
    """One request, in no vendor's words.

    Args:
        model: The model.
        system: Blocks of the system section, in the order in which they are sent.
        messages: Segments of messages, in the order in which they are sent.
        tail: Text that stands behind the conversation in this request only; `None` for nothing.
        tools: The tools on offer.
        max_tokens: Reply budget in tokens, 1 or more.
        temperature: `None` leaves it to the model.
        purpose: What the reply is for.
        run_id: The run that asks; reaches no vendor.
        situation: Where in its blueprint the request stands; called by policy-driven providers only.
        options: Further fields of the vendor's request body, by name.
        timeout_s: Total seconds for one attempt.
        output: The form of the reply; `None` leaves it free. Left out where the profile says that the model takes none.
        stages_ahead: A later stage of the run may send the same tools to the same model.
        allowed_tools: Of *tools*, the ones that may be called, by name; `None` for all. A vendor that cannot be told
            offers all of them, and whoever asked has to refuse the others.
        trace: The span that it belongs to; `None` says nothing to anybody.
    """

    model: str
    system: tuple[Block, ...] = ()
    messages: tuple[Segment, ...] = ()
    tail: Text | None = None
    tools: ToolSet = NO_TOOLS
    max_tokens: int = 4096
    temperature: float | None = None
    purpose: Purpose = "stage"
    run_id: str = ""
    situation: SituationSource | None = None
    options: Mapping[str, Any] = {}
    timeout_s: float = 900.0
    output: OutputFormat | None = None
    stages_ahead: bool = False
    allowed_tools: tuple[str, ...] | None = None
    trace: Trace | None = None

    @property
    def digest(self) -> bytes:
        """16 bytes that stand for tools, system section, messages and tail: a chain over their digests."""
        return digest(
            _bytes(self.model),
            self.tools.digest,
            *[block.digest for block in self.system],
            b"|",
            *[segment.digest for segment in self.messages],
            b"" if self.tail is None else self.tail.digest,
        )


class SituationSource(Protocol):
    """Makes the `Situation` of a request when somebody asks; a request to a vendor never does."""

    def __call__(self) -> Situation: ...


# --- replies


@final
class Usage(msgspec.Struct, frozen=True, gc=False):
    """Tokens of one exchange in disjoint buckets, each 0 or more.

    Args:
        uncached: Input that was neither read from a cache nor written to one.
        cache_read: Input that was read from a cache.
        cache_write: Input that was written to a cache, with the vendor's shortest lifetime.
        cache_write_long: Input that was written to a cache, with a longer lifetime.
        output: Everything the model wrote, reasoning included.
        reasoning: The part of *output* that was reasoning.
    """

    uncached: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_long: int = 0
    output: int = 0
    reasoning: int = 0

    @property
    def input(self) -> int:
        """Everything that was sent."""
        return self.uncached + self.cache_read + self.cache_write + self.cache_write_long

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.uncached + other.uncached,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.cache_write_long + other.cache_write_long,
            self.output + other.output,
            self.reasoning + other.reasoning,
        )


@final
class Reply(msgspec.Struct, frozen=True, gc=False):
    """What a model answered.

    Args:
        text: What it said; empty where it only called tools.
        calls: The tools it asked for, in its order, with the vendor's ids.
        reasoning: Its visible reasoning; empty where there is none.
        state: What the vendor wants back byte for byte; `None` where there is nothing.
        parts: What it made beside text, such as pictures: the bytes of each, in its order.
    """

    text: Text
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    state: ProviderState | None = None
    parts: tuple[bytes, ...] = ()


@final
class TextDelta(msgspec.Struct, frozen=True, gc=False):
    """A piece of text, as it streams: progress, not a result."""

    text: str


@final
class ReasoningDelta(msgspec.Struct, frozen=True, gc=False):
    """A piece of visible reasoning, as it streams."""

    text: str


@final
class Completed(msgspec.Struct, frozen=True, gc=False):
    """The end of a stream that arrived whole.

    Args:
        reply: What the model answered.
        usage: What was billed.
        finish: Why it stopped. `tool_calls` wherever *reply* holds calls, whatever the vendor called it.
        model: The model that answered, by the vendor's word.
        request_id: The vendor's id; `None` where it gave none.
        simulated: No language model was used (offline and scripted providers).
        estimated: The vendor counted nothing; *usage* is an estimate of ours.
    """

    reply: Reply
    usage: Usage
    finish: Finish = "stop"
    model: str = ""
    request_id: str | None = None
    simulated: bool = False
    estimated: bool = False


StreamEvent: TypeAlias = TextDelta | ReasoningDelta | Completed


# --- profiles


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


class Provider(Protocol):
    """Turns one request into a stream that ends in one reply. Pacing and retries are others' work."""

    @property
    def name(self) -> str:
        """Name under which blueprints and spans know it."""
        ...

    @property
    def default_model(self) -> str | None:
        """The model of a stage that names none; `None` where it has no default."""
        ...

    def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        """Send *request* once and yield deltas, then one `Completed`.

        Raises:
            ProviderError: Its leaf says what went wrong and whether the same request may succeed later.
        """
        ...

    async def count_tokens(self, request: Request) -> TokenCount:
        """Return what *request* costs, counted as exactly as this provider can."""
        ...

    def profile(self, model: str) -> ModelProfile:
        """Return what is known of *model*; never asks the network."""
        ...

    async def aclose(self) -> None:
        """Close what is open. Closing twice is fine."""
        ...

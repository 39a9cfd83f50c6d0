"""Events of models: what was asked, what came of it, and what it cost."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal, final

import msgspec

from shoal.providers import Finish, Purpose, Text, Usage
from shoal.runtime.context import Share


@final
class InferenceStarted(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A request goes out.

    Args:
        purpose: What the reply is for.
        provider: Name of the provider.
        model: The model.
        approx_context_chars: Characters of text and tool arguments in it.
        approx_tokens: Corrected estimate of what it costs.
        prompt_digest: Digest of its bytes, hex.
        reply_tokens: The reply budget.
        job: Id of the lane job it belongs to; 0 for none.
        estimated: What its regions were estimated at, uncorrected; 0 where nothing is to be learnt from its bill.
        base: Estimate of what is in no region: tool schemas and framing.
        renders: What scripts rendered of custom regions: region, and the digest under which the journal holds it. A
            region whose script showed nothing that can be used is not among them.
        wanted_tokens: The reply budget that was asked for, where the window leaves less; 0 where it leaves it all.
        call: The call of an agentic function that it belongs to, as seq of its `CallOpened`; 0 for none.
    """

    purpose: Purpose
    provider: str
    model: str
    approx_context_chars: int
    approx_tokens: int
    prompt_digest: str
    reply_tokens: int = 0
    job: int = 0
    estimated: int = 0
    base: int = 0
    renders: tuple[tuple[str, str], ...] = ()
    wanted_tokens: int = 0
    call: int = 0


@final
class CallMade(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A tool call as the model made it; *vendor_id* is the vendor's own id of it."""

    name: str
    arguments: Text
    vendor_id: str = ""


@final
class InferenceCompleted(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A reply arrived whole.

    Args:
        purpose: What the reply is for.
        started: Seq of its `InferenceStarted`.
        text: What the model said.
        calls: The tools it asked for, in its order.
        usage: What was billed: uncached, cache_read, cache_write, cache_write_long, output, reasoning.
        cost: USD; `None` where the price is unknown.
        attribution: The bill by owner.
        finish: Why the model stopped.
        model: The model that answered, where it is not the one that was asked.
        reasoning: Its visible reasoning.
        state: What the vendor wants back byte for byte, as it arrived; `None` for nothing.
        request_id: The vendor's id; `None` for none.
        simulated: No language model was used.
        parts: Seqs of the `PartStored` of what it made beside text, in its order.
        estimated: The vendor counted nothing: usage, cost and attribution are an estimate.
    """

    purpose: Purpose
    started: int
    text: Text
    calls: tuple[CallMade, ...]
    usage: tuple[int, ...]
    cost: Decimal | None
    attribution: tuple[Share, ...]
    finish: Finish = "stop"
    model: str = ""
    reasoning: str = ""
    state: bytes | None = None
    request_id: str | None = None
    simulated: bool = False
    parts: tuple[int, ...] = ()
    estimated: bool = False

    @property
    def billed(self) -> Usage:
        """*usage* as a `Usage`."""
        return Usage(*self.usage)


@final
class HookRan(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A hook of a stage decided something.

    Args:
        hook: The hook, such as `on_stage_enter`.
        stage: The stage whose hook it is.
        action: `allow` lets everything be; `modify` changed something: what stands here, or regions, by events behind
            this one; `cancel` stops the calls (`on_tool_call`) or the run; `failed` is a hook that came to nothing,
            which stops the run too.
        reason: Why it stops something; empty for no reason given.
        source: Seq of the reply it is about; 0 for none.
        text: The new text of the reply, the answer or the error; `None` where it has none to give.
        calls: The new calls of the reply; `None` leaves them as they are.
    """

    hook: str
    stage: str
    action: Literal["allow", "modify", "cancel", "failed"]
    reason: str = ""
    source: int = 0
    text: Text | None = None
    calls: tuple[CallMade, ...] | None = None


@final
class InferenceRetried(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An attempt failed and is repeated after *delay_s*; what it had sent is void.

    Args:
        purpose: What it was for.
        started: Seq of its start.
        attempt: Its number, 1 or more.
        error: The name of the error's class.
        message: What happened.
        delay_s: Seconds until the next one.
        cost: USD that it may have cost, by an estimate, since something had arrived; `None` for nothing, or unknown.
    """

    purpose: Purpose
    started: int
    attempt: int
    error: str
    message: str
    delay_s: float
    cost: Decimal | None = None


@final
class InferenceFailed(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A request came to nothing.

    Args:
        purpose: What it was for.
        started: Seq of its start; 0 where it was not sent.
        error: The name of the error's class.
        message: What happened.
        retryable: The same request may succeed later.
        remedy: What a person has to do before it can; empty where nobody has to do anything.
        cost: USD that the last attempt may have cost, as in `InferenceRetried`.
    """

    purpose: Purpose
    started: int
    error: str
    message: str
    retryable: bool = False
    remedy: str = ""
    cost: Decimal | None = None


@final
class TokensMeasured(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A request was counted before it was sent.

    Args:
        model: The model.
        tokens: The count.
        how: Who counted: `vendor`, `server`, or `tiktoken:ENCODING`.
        estimated: What its regions were estimated at, uncorrected.
        base: Estimate of what is in no region: tool schemas and framing.
        job: Id of the lane job it belongs to; 0 for none.
        call: The call of an agentic function that it belongs to, as seq of its `CallOpened`; 0 for none.
    """

    model: str
    tokens: int
    how: str
    estimated: int
    base: int = 0
    job: int = 0
    call: int = 0


@final
class VolatilityBroken(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A region that is declared `stable` changed for the second time. It is said once a region.

    Args:
        region: The region.
        tokens: Estimate of what the next request sends anew because of it: the region and all behind it.
    """

    region: str
    tokens: int

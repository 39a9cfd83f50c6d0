"""Names of spans, of their attributes and of the events in them: the one table of them all.

A thing that the OpenTelemetry conventions for generative AI name has their name; where a name moved and readers still
look for the old one, both are given. What they do not name is `shoal.*`. The constants of OpenTelemetry's own package
are deprecated, which is why they are written here.

Source: OpenTelemetry semantic conventions for generative AI, status "development", as of November 2026.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

SCOPE: Final = "shoal.observability"
"""Name of the instrumentation that makes the spans."""

# --- spans


def agent_span(agent: str) -> str:
    """Return the name of a run's span."""
    return f"invoke_agent {agent}"


def stage_span(stage: str) -> str:
    """Return the name of the span of one visit of a stage."""
    return f"stage {stage}"


def function_span(function: str) -> str:
    """Return the name of the span of one call of an agentic function."""
    return f"function {function}"


def chat_span(model: str) -> str:
    """Return the name of the span of one inference."""
    return f"chat {model}"


def tool_span(tool: str) -> str:
    """Return the name of the span of one tool call."""
    return f"execute_tool {tool}"


def lane_span(lane: str) -> str:
    """Return the name of the span of one job of a lane."""
    return f"lane.{lane}"


def transition_span(source: str, target: str | None) -> str:
    """Return the name of the span of a transition; *target* `None` ends the run."""
    return f"transition {source} → {target or '(end)'}"


def spawn_span(child: str) -> str:
    """Return the name of the span of the spawn of a child run."""
    return f"spawn {child}"


# --- attributes that the conventions name

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
SYSTEM: Final = "gen_ai.system"
"""What `gen_ai.provider.name` was called."""
AGENT_ID: Final = "gen_ai.agent.id"
AGENT_NAME: Final = "gen_ai.agent.name"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_ID: Final = "gen_ai.response.id"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
"""Everything that was sent, the cached part included."""
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
"""Everything the model wrote, reasoning included."""
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_write.input_tokens"
CACHE_CREATION_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
"""What `gen_ai.usage.cache_write.input_tokens` was called, and what Jaeger's view of such spans reads."""
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOOL_TYPE: Final = "gen_ai.tool.type"
ERROR_TYPE: Final = "error.type"
OPERATION_COST: Final = "operation.cost"
"""USD of one inference, under the name that some backends add up; `shoal.cost.usd` stands on more spans."""

# content: only where the user turned it on
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
TITLE: Final = "shoal.title"

# --- attributes of ours: which span it is, and how it ended

RUN_ID: Final = "shoal.run_id"
SEQ: Final = "shoal.seq"
"""Seq of the event that opened the span; with the run and the span's name it gives the span's id."""
ROOT: Final = "shoal.root"
PARENT: Final = "shoal.parent"
DEPTH: Final = "shoal.depth"
ITEM: Final = "shoal.item"
STAGE: Final = "shoal.stage"
VISIT: Final = "shoal.visit"
OUTCOME: Final = "shoal.outcome"
REASON: Final = "shoal.reason"
INTERRUPTED: Final = "shoal.interrupted"
"""A process died while the span was open."""
SIMULATED: Final = "shoal.simulated"
"""No language model was used."""
ESTIMATED: Final = "shoal.usage.estimated"
"""The vendor counted nothing: tokens and cost are an estimate."""
FLAGS: Final = "shoal.flags"
DROPPED_EVENTS: Final = "shoal.dropped_events"

# --- attributes of ours: inferences, stages, tools

PURPOSE: Final = "shoal.purpose"
OUR_PROVIDER: Final = "shoal.provider"
"""What the swarm calls the provider, where the conventions have a word of their own for it."""
ATTEMPTS: Final = "shoal.attempts"
CONTEXT_CHARS: Final = "shoal.context.chars"
CONTEXT_TOKENS: Final = "shoal.context.tokens"
COUNTED_TOKENS: Final = "shoal.context.counted_tokens"
COUNTED_BY: Final = "shoal.context.counted_by"
EPOCH: Final = "shoal.prompt.epoch"
"""Why the prompt of an append-only model was made anew."""
EPOCH_REWRITTEN: Final = "shoal.prompt.tokens_rewritten"
EPOCH_DROPPED: Final = "shoal.prompt.thinking_dropped"
AMENDED: Final = "shoal.prompt.amended"
"""Regions that were said again at the end of the prompt."""
REPLY_WANTED: Final = "shoal.reply.wanted_tokens"
"""The reply that was asked for, where the window left less."""
WINDOW_TOKENS: Final = "shoal.window.tokens"
INFERENCES: Final = "shoal.inferences"
TOOL_CALLS: Final = "shoal.tool_calls"
ITERATIONS: Final = "shoal.iterations"
ABANDONED: Final = "shoal.regions.abandoned"
STAGE_INPUT: Final = "shoal.tokens.input"
STAGE_OUTPUT: Final = "shoal.tokens.output"
STAGE_CACHE_READ: Final = "shoal.tokens.cache_read"
STAGE_CACHE_WRITE: Final = "shoal.tokens.cache_write"
GATE: Final = "shoal.gate"
FUNCTION: Final = "shoal.function"
EXPOSE: Final = "shoal.function.expose"
STEP: Final = "shoal.function.step"
FUNCTION_INPUT: Final = "shoal.function.input"
"""Only where content is captured."""
FUNCTION_OUTPUT: Final = "shoal.function.output"
"""Only where content is captured."""
RESULT_BYTES: Final = "shoal.result.bytes"
CHILD: Final = "shoal.child"
CHILDREN: Final = "shoal.children"
LANE_REGION: Final = "shoal.lane.region"
LANE_ENTRIES: Final = "shoal.lane.entries"
BYTES_SAVED: Final = "shoal.lane.bytes_saved"
CHANGED: Final = "shoal.changed"

# --- attributes of ours: transitions

FROM: Final = "shoal.transition.from"
TO: Final = "shoal.transition.to"
CONDITION: Final = "shoal.transition.condition"
CHOSEN_BY: Final = "shoal.transition.by"
TRANSFORM: Final = "shoal.transition.transform"
GATE_ATTEMPTS: Final = "shoal.transition.gate_attempts"
GATE_FORCED: Final = "shoal.transition.gate_forced"
CACHE_LOST: Final = "shoal.transition.cache_tokens_lost"
CACHED_BEFORE: Final = "shoal.transition.cached_before"
CACHED_AFTER: Final = "shoal.transition.cached_after"
UNCACHED_AFTER: Final = "shoal.transition.uncached_after"
MOVED_REGIONS: Final = "shoal.transition.regions"
REGIONS_LOST: Final = "shoal.transition.regions.cache_tokens_lost"
TOKENS_BEFORE: Final = "shoal.transition.tokens_before"
TOKENS_AFTER: Final = "shoal.transition.tokens_after"

# --- attributes of ours: cost

COST_USD: Final = "shoal.cost.usd"
SUBTREE_COST_USD: Final = "shoal.cost.subtree_usd"
REPLY_COST_USD: Final = "shoal.cost.reply_usd"
CUT_COST_USD: Final = "shoal.cost.cut_usd"
"""What an attempt that was cut may have cost, by an estimate; in no sum."""
TOP_REGION: Final = "shoal.cost.top_region"
COST_BAND: Final = "shoal.cost.band"
REGIONS: Final = "shoal.regions"
REGIONS_TOKENS: Final = "shoal.regions.tokens"
REGIONS_COST_USD: Final = "shoal.regions.cost_usd"
REGION_PREFIX: Final = "shoal.region."


_VENDORS: Final = {
    "azure": "azure.ai.openai",
    "codex": "openai",
    "google": "gcp.gemini",
    "mistral": "mistral_ai",
    "openai-chat": "openai",
}


def vendor(provider: str) -> str:
    """Return what the conventions call *provider*, which is its name in a swarm; most have the same in both."""
    return _VENDORS.get(provider, provider)


@lru_cache(maxsize=4096)
def region_attributes(region: str) -> tuple[str, str, str, str]:
    """Return the names of one region's attributes: tokens, cache_read, cache_write, cost_usd."""
    stem = f"{REGION_PREFIX}{region}"
    return f"{stem}.tokens", f"{stem}.cache_read", f"{stem}.cache_write", f"{stem}.cost_usd"


# --- links

LINK_KIND: Final = "shoal.link.kind"
"""Why a span points to another: `spawned_by`, `ordered_by`, `routed_by`, `retry_of`."""

# --- events in spans

E_RETRY: Final = "shoal.retry"
E_STEP: Final = "shoal.step"
E_NUDGE: Final = "shoal.nudge"
E_GATE_BLOCKED: Final = "shoal.gate_blocked"
E_MODEL_CHANGED: Final = "shoal.model_changed"
E_BLUEPRINT_CHANGED: Final = "shoal.blueprint_changed"
E_EVICTED: Final = "shoal.evicted"
E_RESET: Final = "shoal.reset"
E_COMPACTED: Final = "shoal.compacted"
E_SEED_REFRESHED: Final = "shoal.seed_refreshed"
E_VOLATILITY: Final = "shoal.volatility_broken"
E_LAYOUT: Final = "shoal.layout"
E_MESSAGE: Final = "shoal.message"
E_PAUSED: Final = "shoal.paused"
E_RESUMED: Final = "shoal.resumed"
E_RESTARTED: Final = "shoal.restarted"
E_REGIONS: Final = "shoal.regions"
"""The whole table of regions, where there are more than the attributes show."""

REGION: Final = "shoal.region"
TOKENS: Final = "shoal.tokens"
ENTRIES: Final = "shoal.entries"
ATTEMPT: Final = "shoal.attempt"
DELAY_S: Final = "shoal.delay_s"
TARGET: Final = "shoal.target"
REQUIREMENT: Final = "shoal.requirement"
SENDER: Final = "shoal.sender"
PROCESS: Final = "shoal.process"

# --- metrics, and what they are told apart by

METRIC_TOKEN_USAGE: Final = "gen_ai.client.token.usage"  # noqa: S105 - tokens of a model
METRIC_OPERATION_DURATION: Final = "gen_ai.client.operation.duration"
METRIC_TOKEN_TYPE: Final = "gen_ai.token.type"  # noqa: S105 - see above
METRIC_RUNS: Final = "shoal.runs"
METRIC_REGION_FILL: Final = "shoal.region.fill"
METRIC_CACHE_HIT_RATIO: Final = "shoal.cache.hit_ratio"
METRIC_COST: Final = "shoal.cost"
METRIC_POOL_BUSY: Final = "shoal.pool.busy"
METRIC_POOL_QUEUED: Final = "shoal.pool.queued"
METRIC_POOL_WAIT: Final = "shoal.pool.wait"
METRIC_LANE_QUEUED: Final = "shoal.lane.queued"
METRIC_LANE_FAILED: Final = "shoal.lane.failed"
METRIC_LANE_DEGRADED: Final = "shoal.lane.degraded"
METRIC_RESTARTS: Final = "shoal.actor.restarts"
METRIC_COMMIT_DURATION: Final = "shoal.journal.commit.duration"
METRIC_POOL: Final = "shoal.pool"
METRIC_LANE: Final = "shoal.lane"
METRIC_REGION: Final = "shoal.region"
METRIC_AGENT: Final = "shoal.agent"
METRIC_STATE: Final = "shoal.state"
METRIC_SUPERVISOR: Final = "shoal.supervisor"
METRIC_EVENTS: Final = "shoal.journal.events"

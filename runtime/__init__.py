"""Runs: the actor that owns a window and walks stages; events, journal, ledger, lanes, tools, the swarm.

`Swarm` takes objects (providers, a journal, observers) and knows no names, no environment and no telemetry; the front
door `shoal.Swarm` resolves those.
"""

from shoal.runtime._accounts import account_of
from shoal.runtime._agentic import Context, Ended, Spawned
from shoal.runtime._attachment import Attachable, Attachment, SeedValue
from shoal.runtime._call_prompt import newest_prompt
from shoal.runtime._change import made_of
from shoal.runtime._clock import Clock, virtual
from shoal.runtime._contracts import Contract, Decision, Deliverable, PassedTo
from shoal.runtime._function import AgenticCall, AgenticFunction, agentic
from shoal.runtime._handle import Outcome, Run, checked
from shoal.runtime._lanes import WIDTHS, JobFailed
from shoal.runtime._limits import Limits
from shoal.runtime._mcp import McpServer
from shoal.runtime._orders import GivenTool, SpawnRequest
from shoal.runtime._people import Question, asked_below, questions_of
from shoal.runtime._pools import Pool, Pools, PoolStatistics
from shoal.runtime._secrets import LEAST_SECRET_CHARS, STRUCK, Secrets
from shoal.runtime._started import Started
from shoal.runtime._statistics import LaneStatistics, SwarmStatistics, said_of, statistics_from
from shoal.runtime._swarm import Swarm
from shoal.runtime._trees import agent
from shoal.runtime.context import Components, ContextComponent, PartStored, Surroundings
from shoal.runtime.events import BudgetGiven, Event
from shoal.runtime.journal import Journal, MemoryJournal, Observer, Reader, RunRow, SqliteJournal, SqliteReader
from shoal.runtime.ledger import Ledger, RegionMove, RegionRow, StageRow, Tally, TransitionRow, ledger_of, plain_usage
from shoal.runtime.program import Program, recorded
from shoal.runtime.state import RunState, fold
from shoal.runtime.tools import (
    BUILT_IN,
    Effects,
    FolderMemory,
    FunctionTool,
    Grants,
    Memory,
    Note,
    NoteRefused,
    Permissions,
    Tool,
    ToolResult,
    tool,
)

__all__ = [
    "BUILT_IN",
    "LEAST_SECRET_CHARS",
    "STRUCK",
    "WIDTHS",
    "AgenticCall",
    "AgenticFunction",
    "Attachable",
    "Attachment",
    "BudgetGiven",
    "Clock",
    "Components",
    "Context",
    "ContextComponent",
    "Contract",
    "Decision",
    "Deliverable",
    "Effects",
    "Ended",
    "Event",
    "FolderMemory",
    "FunctionTool",
    "GivenTool",
    "Grants",
    "JobFailed",
    "Journal",
    "LaneStatistics",
    "Ledger",
    "Limits",
    "McpServer",
    "Memory",
    "MemoryJournal",
    "Note",
    "NoteRefused",
    "Observer",
    "Outcome",
    "PartStored",
    "PassedTo",
    "Permissions",
    "Pool",
    "PoolStatistics",
    "Pools",
    "Program",
    "Question",
    "Reader",
    "RegionMove",
    "RegionRow",
    "Run",
    "RunRow",
    "RunState",
    "Secrets",
    "SeedValue",
    "SpawnRequest",
    "Spawned",
    "SqliteJournal",
    "SqliteReader",
    "StageRow",
    "Started",
    "Surroundings",
    "Swarm",
    "SwarmStatistics",
    "Tally",
    "Tool",
    "ToolResult",
    "TransitionRow",
    "account_of",
    "agent",
    "agentic",
    "asked_below",
    "checked",
    "fold",
    "ledger_of",
    "made_of",
    "newest_prompt",
    "plain_usage",
    "questions_of",
    "recorded",
    "said_of",
    "statistics_from",
    "tool",
    "virtual",
]

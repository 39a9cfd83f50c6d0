"""The tools on sub-agents: start one, look at it, wait for it, write to it, end it. The run itself answers them."""

from __future__ import annotations

from shoal.runtime.tools._schema import object_of, text_of
from shoal.runtime.tools._tool import Effects, Tool

SPAWN = "spawn_agent"
CHECK = "check_agent"
WAIT = "wait_for_agent"
SEND = "send_to_agent"
KILL = "kill_agent"

_ID = text_of("Id of the sub-agent, as `spawn_agent` gave it.")
_LOOKS = Effects(reads=True)
# A child is found again under the call that asked for it, and a run that is over cannot be ended twice.
_REPEATS = Effects(writes=True, idempotent=True)

AGENT_TOOLS = (
    Tool(
        SPAWN,
        "Start a sub-agent: a run of its own that sees nothing of yours but the task and the seeds. "
        "With `wait` you get its answer; without it you get its id at once and it works beside you.",
        object_of(
            {
                "blueprint": text_of("Name or path of its blueprint."),
                "task": text_of("What it is to do."),
                "seeds": {
                    "type": "object",
                    "additionalProperties": {"type": "string"},
                    "description": "What it is given, by name.",
                },
                "wait": {"type": "boolean", "description": "Wait for its answer. No by default."},
                "max_child_depth": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "How many levels of sub-agents it may have of its own.",
                },
                "output_format": text_of("How its answer is to be written, such as `json` or `markdown`."),
                "output_instructions": text_of("What its answer is to look like."),
            },
            "blueprint",
            "task",
        ),
        None,
        effects=_REPEATS,
    ),
    Tool(
        CHECK,
        "Say how a sub-agent is doing; of one that is over, its answer too.",
        object_of({"agent_id": _ID}, "agent_id"),
        None,
        effects=_LOOKS,
    ),
    Tool(
        WAIT,
        "Wait until a sub-agent is over, and get its answer.",
        object_of({"agent_id": _ID}, "agent_id"),
        None,
        effects=_LOOKS,
    ),
    Tool(
        SEND,
        "Send a sub-agent a message; it reads it before its next step.",
        object_of(
            {
                "agent_id": _ID,
                "message": text_of("The message."),
                "target_region": text_of(
                    "The region of its window that takes the message; its conversation otherwise."
                ),
            },
            "agent_id",
            "message",
        ),
        None,
        effects=Effects(writes=True),
    ),
    Tool(
        KILL,
        "End a sub-agent and everything below it.",
        object_of({"agent_id": _ID}, "agent_id"),
        None,
        effects=_REPEATS,
    ),
)
"""Tools on sub-agents."""

AGENTS = frozenset(tool.name for tool in AGENT_TOOLS)
"""Their names."""

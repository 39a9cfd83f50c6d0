"""The tools that the run itself answers: on its regions, its checklists, its output and its workers."""

from __future__ import annotations

from shoal.runtime.tools._schema import object_of as _object
from shoal.runtime.tools._schema import text_of as _text
from shoal.runtime.tools._tool import Tool

SUBMIT_OUTPUT = "submit_output"
FAN_OUT = "fan_out"
CONTEXT_ATTACH = "context_attach"
LOAD_TOOLS = "load_tools"


_REGION = _text("Name of the region, as its heading says it.")
_CHECKLIST = _text("Name of the checklist.")
_KEY = _text("Name of the entry in its region.")
_CONTENT = _text("What to put there.")
_ID = {"type": "integer", "minimum": 1, "description": "Id of the item."}
_COUNT = {"type": "integer", "minimum": 1}

WINDOW_TOOLS = (
    Tool(
        "context_write",
        "Replace what a region holds; with a key, only what that key holds.",
        _object({"region": _REGION, "content": _CONTENT, "key": _KEY}, "region", "content"),
        None,
    ),
    Tool(
        "context_append",
        "Add an entry to a region.",
        _object({"region": _REGION, "content": _CONTENT, "key": _KEY}, "region", "content"),
        None,
    ),
    Tool(
        CONTEXT_ATTACH,
        "Add an image, a document or another stored part to a region, where it stays in sight.",
        _object(
            {
                "region": _REGION,
                "part": _text("Name of a stored part, as its line says it, or a file in the working directory."),
                "key": _KEY,
            },
            "region",
            "part",
        ),
        None,
    ),
    Tool(
        "context_read",
        "Show what a region holds, or what one key of it holds.",
        _object({"region": _REGION, "key": _KEY}, "region"),
        None,
    ),
    Tool(
        "context_list",
        "List the entries of a region with index, id, key and tokens; without a region, all regions with their fill.",
        _object({"region": _REGION}),
        None,
    ),
    Tool(
        "context_delete",
        "Release entries of a region that are no longer needed: by key, index, id, or the oldest few. "
        "Their tokens are free at once.",
        _object(
            {
                "region": _REGION,
                "key": _KEY,
                "index": {"type": "integer", "minimum": 0, "description": "Place in `context_list`, from 0."},
                "id": _ID,
                "oldest": {**_COUNT, "description": "How many of the oldest."},
            },
            "region",
        ),
        None,
    ),
    Tool(
        "todo_add",
        "Open an item on a checklist; answers with its id.",
        _object({"region": _CHECKLIST, "item": _text("What is to be done.")}, "region", "item"),
        None,
    ),
    Tool("todo_done", "Close an item.", _object({"region": _CHECKLIST, "id": _ID}, "region", "id"), None),
    Tool(
        "todo_note",
        "Add a note to an item; it stays as it is.",
        _object({"region": _CHECKLIST, "id": _ID, "note": _text("The note.")}, "region", "id", "note"),
        None,
    ),
    Tool(
        "todo_drop",
        "Close an item that will not be done, and say why.",
        _object({"region": _CHECKLIST, "id": _ID, "reason": _text("Why.")}, "region", "id", "reason"),
        None,
    ),
)
"""Tools on regions and checklists; `shoal.runtime.context.operate` answers them."""

RUN_TOOLS = (
    Tool(
        SUBMIT_OUTPUT,
        "Submit the answer. A later valid submission takes the place of an earlier one.",
        _object(
            {
                "content": _text("The whole answer."),
                "artifacts": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "Files in the working directory that belong to it.",
                },
            },
            "content",
        ),
        None,
    ),
    Tool(
        LOAD_TOOLS,
        "Load tools that are listed by name only; you can call them from your next turn on.",
        _object(
            {
                "names": {
                    "type": "array",
                    "items": {"type": "string"},
                    "minItems": 1,
                    "description": "Their names, as the list of deferred tools has them.",
                }
            },
            "names",
        ),
        None,
    ),
    Tool(
        FAN_OUT,
        "Hand each item to a worker of its own, all at once, and get all their results. "
        "It must be the only call of its turn.",
        _object(
            {
                "items": {
                    "type": "array",
                    "description": "One entry a worker.",
                    "items": _object(
                        {
                            "id": _text("Short name of the item, unique in the list."),
                            "seeds": {
                                "type": "object",
                                "additionalProperties": {"type": "string"},
                                "description": "What the worker is given, by name.",
                            },
                            "task": _text("What the worker is to do, where it takes a task."),
                        },
                        "id",
                    ),
                },
                "agent": _text("The worker's blueprint, where the stage names none."),
                "max_workers": {**_COUNT, "description": "Most workers at once."},
            },
            "items",
        ),
        None,
    ),
)
"""Tools that end in the run's own state."""

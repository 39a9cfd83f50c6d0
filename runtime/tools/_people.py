"""The tools that wait for a person; the run itself asks, and goes on when somebody answered."""

from __future__ import annotations

from collections.abc import Mapping

from shoal.runtime.tools._schema import object_of, text_of
from shoal.runtime.tools._tool import Effects, Tool

_ASKS = Effects(asks_human=True)
_PROMPT = text_of("What to ask.")

PEOPLE_TOOLS = (
    Tool(
        "ask_user_text",
        "Ask a person and get their answer as text.",
        object_of({"prompt": _PROMPT}, "prompt"),
        None,
        effects=_ASKS,
    ),
    Tool(
        "ask_user_confirm",
        "Ask a person to say yes or no.",
        object_of({"prompt": _PROMPT}, "prompt"),
        None,
        effects=_ASKS,
    ),
    Tool(
        "ask_user_choice",
        "Ask a person to choose one of several options.",
        object_of(
            {
                "prompt": _PROMPT,
                "options": {
                    "type": "array",
                    "items": {"type": "string", "minLength": 1},
                    "minItems": 2,
                    "uniqueItems": True,
                    "description": "What can be chosen.",
                },
            },
            "prompt",
            "options",
        ),
        None,
        effects=_ASKS,
    ),
    Tool(
        "present_for_review",
        "Show a person a document and get what they say of it.",
        object_of({"title": text_of("What it is."), "markdown": text_of("The document.")}, "title", "markdown"),
        None,
        effects=_ASKS,
    ),
    Tool(
        "edit_document",
        "Have a person edit a document, and get it as they leave it.",
        object_of({"content": text_of("The document."), "prompt": text_of("What to look at.")}, "content"),
        None,
        effects=_ASKS,
    ),
)
"""Tools that wait for a person."""

QUESTIONS: Mapping[str, str] = {
    "ask_user_text": "text",
    "ask_user_confirm": "confirm",
    "ask_user_choice": "choice",
    "present_for_review": "review",
    "edit_document": "edit",
}
"""What kind of question each of these tools asks."""

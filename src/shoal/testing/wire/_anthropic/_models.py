"""What Anthropic says of its models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shoal.testing.wire._clock import rfc3339
from shoal.testing.wire._models import EFFORTS, Model

TYPES = ("adaptive", "enabled", "disabled", "between_tools")


def shown(model: Model) -> dict[str, Any]:
    """Return what `GET /v1/models/{id}` gives."""
    yes, no = {"supported": True}, {"supported": False}
    return {
        "type": "model",
        "id": model.name,
        "display_name": model.name,
        "created_at": rfc3339(0),
        "deprecated_at": None,
        "retires_at": None,
        "lifecycle": "active",
        "line": next((line for line in ("haiku", "sonnet", "opus", "fable", "mythos") if line in model.name), None),
        "max_input_tokens": model.prompt_limit,
        "max_tokens": model.max_output,
        "capabilities": {
            "batch": no,
            "citations": yes,
            "code_execution": no,
            "context_management": no,
            "effort": {"supported": True, **dict.fromkeys(EFFORTS, yes)},
            "image_input": yes,
            "pdf_input": yes,
            "server_tools": {"supported": False, "code_execution": no, "web_search": no},
            "structured_outputs": yes,
            "thinking": {
                "supported": bool(model.thinking),
                "types": {kind: {"supported": kind in model.thinking} for kind in TYPES},
            },
        },
    }


def listed(models: Sequence[Model]) -> dict[str, Any]:
    """Return what `GET /v1/models` gives: all on one page."""
    names = [model.name for model in models]
    return {
        "data": [shown(model) for model in models],
        "has_more": False,
        "first_id": names[0],
        "last_id": names[-1],
    }

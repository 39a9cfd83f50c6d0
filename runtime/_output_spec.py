"""What an answer has to look like: which level's word counts, and how the model is told."""

from __future__ import annotations

import json
from typing import final

import msgspec

from shoal.blueprints import OutputSpec


@final
class OutputAsked(msgspec.Struct, frozen=True):
    """What whoever spawned a run asks of its answer; `None` leaves it to the blueprint. *schema* is JSON source."""

    format: str | None = None
    instructions: str | None = None
    schema: str | None = None


NOTHING_ASKED = OutputAsked()


def merged(agent: OutputSpec | None, stage: OutputSpec | None, asked: OutputAsked = NOTHING_ASKED) -> OutputSpec:
    """Return what counts, key by key: the word of the spawn over the stage's over the blueprint's.

    Where the spawn asks for a schema, or for another format than was declared, the declared schema, example and
    validator are no longer about this answer and are left out.
    """
    low, high = agent or OutputSpec(), stage or OutputSpec()
    declared = high.format or low.format
    format_ = asked.format or declared
    instructions = asked.instructions or high.instructions or low.instructions
    if asked.schema is not None:
        return OutputSpec(format_, instructions, json.loads(asked.schema))
    if asked.format is not None and declared is not None and asked.format.lower() != declared.lower():
        return OutputSpec(format_, instructions)
    return OutputSpec(
        format_,
        instructions,
        high.schema or low.schema,
        high.example or low.example,
        high.validator or low.validator,
    )


def told(spec: OutputSpec) -> str:
    """Return what a model is told of *spec*; empty where it asks for nothing."""
    said: list[str] = []
    if spec.format:
        said.append(f"Write it as {spec.format}.")
    if spec.instructions:
        said.append(spec.instructions.strip())
    if spec.schema:
        said.append(f"It has to match this JSON schema: {json.dumps(spec.schema, ensure_ascii=False)}")
    if spec.example:
        said.append(f"An example:\n{spec.example.strip()}")
    return "\n".join(said)

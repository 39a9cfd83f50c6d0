"""What a chat completion makes the model read, block by block."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.testing.wire._json import Json, obj
from shoal.testing.wire._openai._chat_request import Request, calls_of, parts_of
from shoal.testing.wire._openai._media_tokens import FILE, image_tokens
from shoal.testing.wire._prompt import Block, Prompt
from shoal.testing.wire._tokens import BYTES_PER_TOKEN, compact, count, utf8

REASONING = ("reasoning_content", "reasoning")
"""Fields in which servers take back what the model thought."""


def prompt(request: Request, scope: str) -> Prompt:
    """Return what *request* makes the model read."""
    blocks = [
        Block(f"tools[{number}]", "tools", utf8(compact(tool)), count(compact(tool)))
        for number, tool in enumerate(request.tools)
    ]
    wanted = obj(request.body.get("response_format"))
    if wanted.get("type") == "json_schema":
        blocks.append(Block("response_format", "format", utf8(compact(wanted)), count(compact(wanted))))
    for number, message in enumerate(request.messages):
        blocks += message_blocks(message, f"messages[{number}]")
    tier = tier_of(request.body) if request.model.breakpoints else ""
    return Prompt(request.model.name, scope, tuple(blocks), dict.fromkeys(("tools", "format", "messages"), tier))


def tier_of(body: Json) -> str:
    """Return what has to be the same, besides the blocks, for a model that caches at breakpoints."""
    effort = body.get("reasoning_effort") or obj(body.get("reasoning")).get("effort")
    verbosity = body.get("verbosity") or obj(body.get("text")).get("verbosity")
    return compact([effort, verbosity, body.get("service_tier") or "auto"])


def message_blocks(message: Json, path: str) -> list[Block]:
    """Return the blocks of one message: its parts, its reasoning, its calls."""
    role = message["role"]
    blocks = [_part(part_path, part, role) for part_path, part in parts_of(message, path)]
    told = [field for field in (*REASONING, "refusal") if isinstance(message.get(field), str) and message[field]]
    blocks += [_block(f"{path}.{field}", message[field], f"{role} {field}") for field in told]
    for number, call in enumerate(calls_of(message)):
        asked = obj(call.get("function") or call.get("custom"))
        text = compact(asked)
        tokens = count(asked["name"]) + count(asked.get("arguments", asked.get("input", "")))
        blocks.append(Block(f"{path}.tool_calls[{number}]", "messages", utf8(text), tokens, f"{role} call".encode()))
    return blocks


def _block(path: str, text: str, frame: str, marker: str | None = None) -> Block:
    return Block(path, "messages", utf8(text), count(text), frame.encode(), marker)


def _part(path: str, part: Json, role: str) -> Block:
    frame = f"{role} {part['type']}"
    marker = marker_of(part)
    match part["type"]:
        case "text":
            return _block(path, part["text"], frame, marker)
        case "refusal":
            return _block(path, part["refusal"], f"{role} refusal", marker)
        case "image_url":
            tokens = image_tokens(part["image_url"]["url"], part["image_url"].get("detail"))
        case _:
            tokens = FILE
    bare = {key: part[key] for key in part if key not in ("prompt_cache_breakpoint", "cache_control")}
    return Block(path, "messages", utf8(compact(bare)), tokens, frame.encode(), marker)


def marker_of(part: Json) -> str | None:
    """Return how long the marker on *part* asks for; `None` if there is none."""
    if point := part.get("prompt_cache_breakpoint"):
        return point.get("ttl") or "30m"
    if control := part.get("cache_control"):  # what a gateway hands on to Anthropic
        return control.get("ttl") or "5m"
    return None


def ends(prompt: Prompt) -> list[int]:
    """Return the positions of the last block of each message."""
    owners = [block.path.split(".")[0] for block in prompt.blocks]
    messages = [place for place, block in enumerate(prompt.blocks) if block.tier == "messages"]
    return [place for place in messages if place + 1 == len(owners) or owners[place + 1] != owners[place]]


def rendered(blocks: Sequence[Block]) -> str:
    """Return *blocks* as the one text that a local server makes of them; it counts as much as they do."""
    return "".join(_padded(block) for block in blocks)


def _padded(block: Block) -> str:
    size = BYTES_PER_TOKEN * block.tokens
    return block.data.ljust(size)[:size].decode("utf-8", "replace")
